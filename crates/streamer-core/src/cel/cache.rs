//! Equal expressions are compiled once.
//!
//! Any number of threads may use a cache. Two threads that need the same new expression at once may both compile it:
//! compiling under the lock would make every other thread wait.

use super::{Error, Executable, compile};
use crate::fork;
use crate::limits::Limits;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The programs compiled last, up to a size; the one longest unused goes first.
#[derive(Debug)]
pub struct Cache {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    size: usize,
    programs: HashMap<Arc<str>, (Arc<Executable>, u64)>,
    /// The programs by the time of their last use.
    used: BTreeMap<u64, Arc<str>>,
    clock: u64,
    counts: CacheCounts,
}

/// Counts of the requests to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// How many programs were found there.
    pub hits: u64,
    /// How many had to be compiled, including those that are not CEL.
    pub misses: u64,
}

impl Entries {
    fn get(&mut self, source: &str) -> Option<Arc<Executable>> {
        let Some((name, (program, _))) = self.programs.get_key_value(source) else {
            self.counts.misses += 1;
            return None;
        };
        let (name, program) = (name.clone(), program.clone());
        self.counts.hits += 1;
        self.put(name, program.clone());
        Some(program)
    }

    fn put(&mut self, name: Arc<str>, program: Arc<Executable>) {
        self.clock += 1;
        self.used.insert(self.clock, name.clone());
        // Either it was cached before, or another thread has compiled it meanwhile.
        if let Some((_, before)) = self.programs.insert(name, (program, self.clock)) {
            self.used.remove(&before);
        }
    }
}

impl Entries {
    fn shrink(&mut self) {
        while self.programs.len() > self.size {
            let Some((_, oldest)) = self.used.pop_first() else { break };
            self.programs.remove(&oldest);
        }
    }
}

impl Cache {
    /// A cache of *size* programs.
    pub fn new(size: usize) -> Cache {
        Cache { entries: Mutex::new(Entries { size, ..Entries::default() }) }
    }

    /// Keep at most *size* programs from now on.
    pub fn resize(&self, size: usize) {
        self.locked(|cache| {
            cache.size = size;
            cache.shrink();
        });
    }

    /// The program of *source*.
    ///
    /// # Errors
    ///
    /// It is not an acceptable expression; the failure is not cached.
    pub fn get(&self, source: &str, limits: &Limits) -> Result<Arc<Executable>, Error> {
        if let Some(program) = self.locked(|cache| cache.get(source)) {
            return Ok(program);
        }
        let program = compile(source, limits)?;
        let made = Executable::new(Arc::new(program)).map_err(|reason| Error { line: 1, column: 1, reason })?;
        let program = Arc::new(made);
        self.locked(|cache| {
            cache.put(source.into(), program.clone());
            cache.shrink();
        });
        Ok(program)
    }

    /// Drop the programs that only the cache references. After a large load they lie scattered in the memory that the
    /// load freed, and prevent its reuse.
    pub fn forget_unused(&self) {
        self.locked(|cache| {
            cache.programs.retain(|_, (program, _)| Arc::strong_count(program) > 1);
            cache.programs.shrink_to_fit();
            cache.used.retain(|_, name| cache.programs.contains_key(name));
        });
    }

    /// The counts of its requests.
    pub fn counts(&self) -> CacheCounts {
        self.locked(|cache| cache.counts)
    }

    /// How many programs it contains.
    pub fn len(&self) -> usize {
        self.locked(|cache| cache.programs.len())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn locked<T>(&self, act: impl FnOnce(&mut Entries) -> T) -> T {
        let _inside = fork::inside();
        act(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_somebody_has_is_not_forgotten() {
        let (cache, limits) = (Cache::new(3), Limits::default());
        let ask = |source| cache.get(source, &limits).unwrap();
        let held = ask("data.a > 1");
        ask("data.a > 2");
        cache.forget_unused();
        assert_eq!(cache.len(), 1);
        assert!(Arc::ptr_eq(&held, &ask("data.a > 1")));
        // The oldest program that remains is still the first to be dropped.
        ["data.a > 3", "data.a > 4", "data.a > 5"].iter().for_each(|source| drop(ask(source)));
        assert!(!Arc::ptr_eq(&held, &ask("data.a > 1")));
    }

    #[test]
    fn the_program_longest_unused_goes_first() {
        let (cache, limits) = (Cache::new(2), Limits::default());
        let ask = |source| cache.get(source, &limits).unwrap();
        let first = ask("data.a > 1");
        ask("data.a > 2");
        assert!(Arc::ptr_eq(&first, &ask("data.a > 1")));
        ask("data.a > 3");
        assert!(Arc::ptr_eq(&first, &ask("data.a > 1")));
        assert_eq!(cache.counts(), CacheCounts { hits: 2, misses: 3 });
        ask("data.a > 2");
        assert_eq!((cache.len(), cache.counts().misses), (2, 4));
        cache.resize(1);
        assert_eq!(cache.len(), 1);
        cache.resize(2);
        ask("data.a > 1");
        assert!(cache.get("data.", &limits).is_err());
        assert_eq!((cache.len(), cache.counts().misses), (2, 6));
    }
}
