//! What is right, said slowly.
