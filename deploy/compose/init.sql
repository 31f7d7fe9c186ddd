-- Each change carries the row from before it, too; the publication says whose changes leave the database.
CREATE TABLE orders (id int PRIMARY KEY, status text, amount int);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE PUBLICATION streamer FOR TABLE orders;
