//! Merges: which segments of a partition become one, and the thread that does the large ones.
//!
//! ```text
//!   level = log8 of the live subscriptions       1 1 1 1 1 1 1 + 1  ─►  8      8 × 8 ─► 64  ...  8 × 4096 ─► 32,768
//!   up to SMALL together: the writer merges      beyond: the thread builds, then swaps under the writer's lock
//! ```
//!
//! Invariant: after a write, a partition has fewer than 8 segments of each level below [`SMALL`], not counting segments
//! of more than [`LIGHT`] bytes.
//!
//! Cost: each subscription is copied once a level. A query searches up to 7 segments a level, of which those below 64
//! are plain lists.
//!
//! Rejected: merging everything always (quadratic), never (a query searches every segment), or all in the thread (a
//! thousand single adds would be a thousand segments until it wakes).

use crate::engine::index::segment::Segment;
use crate::engine::state::engine_state::EngineState;
use crate::engine::state::engine_version::Version;
use crate::engine::state::name::PartitionName;
use crate::engine::state::partitions::Partition;
use crate::engine::verify::store::StoreBuilder;
use crate::fork;
use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const WIDTH: usize = 8;
/// The writer itself merges up to this many subscriptions: a few milliseconds.
const SMALL: usize = 4096;
/// ... whose conditions have at most this many bytes each: a write must not rebuild a large segment, nor fail for it.
const LIGHT: usize = 16 << 20;
/// After the thread has been idle for this long, it returns the memory that merges and changes have left free.
const QUIET: Duration = Duration::from_secs(1);
/// This many changed subscriptions, at once or one by one, leave megabytes free.
pub const MANY: usize = 10_000;

fn level(live: usize) -> u32 {
    live.max(1).ilog2() / 3
}

fn is_mostly_gone(segment: &Segment) -> bool {
    segment.live() * 2 <= segment.store.len()
}

/// The existing segments that the writer merges with *added* new subscriptions.
pub fn small_merge(segments: &[Arc<Segment>], added: usize) -> Vec<bool> {
    let is_light: Vec<bool> = segments.iter().map(|segment| segment.store.encoded.bytes() <= LIGHT).collect();
    let is_ours = |n: &usize| is_light[*n] && segments[*n].live() <= SMALL;
    let mut merged: Vec<bool> =
        (0..segments.len()).map(|n| is_mostly_gone(&segments[n]) && is_light[n] && segments[n].store.len() <= SMALL).collect();
    let sum = |merged: &[bool]| -> usize {
        added + segments.iter().zip(merged).filter(|(_, merged)| **merged).map(|(segment, _)| segment.live()).sum::<usize>()
    };
    loop {
        let total = sum(&merged);
        if total == 0 || total > SMALL {
            return merged;
        }
        let at = level(total);
        let open = || (0..segments.len()).filter(is_ours).filter(|n| !merged[*n]);
        let same: Vec<usize> = open().filter(|n| level(segments[*n].live()) == at).collect();
        let below: Vec<usize> = open().filter(|n| level(segments[*n].live()) < at).collect();
        if same.len() + 1 >= WIDTH {
            same.iter().chain(&below).for_each(|n| merged[*n] = true);
        } else if !below.is_empty() {
            below.iter().for_each(|n| merged[*n] = true);
        } else {
            return merged;
        }
    }
}

/// The segments that the thread should merge: enough of a level to make one of the next, with the smaller ones that the
/// writer does not merge; or segments that are mostly removed.
pub fn large_merge(segments: &[Arc<Segment>]) -> Option<Vec<Arc<Segment>>> {
    let gone: Vec<Arc<Segment>> = segments.iter().filter(|segment| is_mostly_gone(segment)).cloned().collect();
    if !gone.is_empty() {
        return Some(gone);
    }
    let mut levels: Vec<u32> = segments.iter().map(|segment| level(segment.live())).collect();
    levels.sort_unstable();
    let full = levels.chunk_by(|left, right| left == right).filter(|same| same.len() >= WIDTH).map(|same| same[0]).max()?;
    // The writer would often have removed its own segments by the end of this merge, which would be in vain.
    let least = if full >= level(SMALL) { level(SMALL) } else { 0 };
    Some(segments.iter().filter(|segment| (least..=full).contains(&level(segment.live()))).cloned().collect())
}

/// How the engine and its thread communicate: lock-free, since a lock might be locked in a forked child.
#[derive(Debug, Default)]
pub struct Signal {
    is_requested: AtomicBool,
    /// Whether all segments of each partition are to become one.
    wants_one: AtomicBool,
    /// Subscriptions that were changed since there were [`MANY`].
    changed: AtomicUsize,
    stop: AtomicBool,
    /// The process that the thread runs in; 0 for none.
    process: AtomicU32,
    thread: ArcSwapOption<Thread>,
}

impl Signal {
    /// Wake the thread if there is something to merge, or memory to return after *changed* more changes; start it if it
    /// does not run, or ran before a fork.
    pub(in crate::engine) fn ask(self: &Arc<Signal>, state: &Arc<EngineState>, changed: usize) {
        if !state.options.background {
            return;
        }
        let is_much = self.changed.fetch_add(changed, Ordering::Relaxed) + changed >= MANY;
        if is_much {
            self.changed.store(0, Ordering::Relaxed);
        }
        if is_much || !state.lock_writer().merges.is_empty() {
            self.wake_or_start(state);
        }
    }

    /// Have the thread merge all segments of each partition into one.
    pub(in crate::engine) fn settle(self: &Arc<Signal>, state: &Arc<EngineState>) {
        if state.options.background {
            self.wants_one.store(true, Ordering::SeqCst);
            self.wake_or_start(state);
        }
    }

    fn wake_or_start(self: &Arc<Signal>, state: &Arc<EngineState>) {
        self.is_requested.store(true, Ordering::SeqCst);
        let process = std::process::id();
        if self.process.swap(process, Ordering::SeqCst) == process {
            self.wake();
            return;
        }
        let (state, signal) = (Arc::downgrade(state), self.clone());
        let work = move || fork::detached(|| run(&state, &signal));
        // Without a thread there are more segments, with the same results.
        if thread::Builder::new().name("streamer-merge".into()).spawn(work).is_err() {
            self.process.store(0, Ordering::SeqCst);
        }
    }

    /// Let the thread end.
    pub(in crate::engine) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // A new thread that is not registered yet checks before it waits for the first time.
        if let Some(thread) = &*self.thread.load() {
            thread.unpark();
        }
    }
}

fn run(state: &Weak<EngineState>, signal: &Signal) {
    signal.thread.store(Some(Arc::new(thread::current())));
    let is_stopped = || signal.stop.load(Ordering::SeqCst);
    let mut was_requested = false;
    loop {
        let mut since = Instant::now();
        while !signal.is_requested.swap(false, Ordering::SeqCst) {
            if is_stopped() {
                return;
            }
            if !was_requested {
                thread::park();
                since = Instant::now();
            } else if since.elapsed() < QUIET {
                thread::park_timeout(QUIET);
            } else if let Some(state) = state.upgrade() {
                // Now, since who merges on would want it back at once.
                was_requested = false;
                let _inside = fork::inside();
                state.options.give_back.iter().for_each(|give_back| give_back());
            } else {
                return;
            }
        }
        was_requested = true;
        while !is_stopped() {
            let Some(state) = state.upgrade() else { return };
            let next = || {
                let _inside = fork::inside();
                state.lock_writer().merges.pop()
            };
            let Some(name) = next() else { break };
            // A merge that panics leaves its partition as it was.
            let merge = || state.merge_partition(&name, |partition| large_merge(&partition.segments));
            let merged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(merge));
            if let Ok(Some(false)) = merged {
                let _inside = fork::inside();
                state.lock_writer().merges.push(name);
            }
        }
        if signal.wants_one.swap(false, Ordering::SeqCst)
            && let Some(state) = state.upgrade()
        {
            let merge = || state.merge_all(is_stopped);
            _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(merge));
        }
        if is_stopped() {
            return;
        }
    }
}

impl EngineState {
    /// Merge all segments of each partition into one, in this thread.
    pub fn merge(&self) {
        self.merge_all(|| false);
    }

    /// Merge all segments of each partition into one, unless it *is_stopped*.
    fn merge_all(&self, is_stopped: impl Fn() -> bool) {
        let mut names = Vec::new();
        // A partition in a file is one segment, or not opened yet.
        let written = |partition: &Arc<Partition>| partition.section.is_none().then(|| partition.name.clone());
        self.version.load().partitions.for_each(|partition| names.extend(written(partition)));
        for name in names {
            let whole = |partition: &Partition| {
                let segments = &partition.segments;
                let is_merged = segments.len() == 1 && segments[0].live() == segments[0].store.len();
                (!is_merged).then(|| segments.clone())
            };
            // Another writer may have changed the partition meanwhile: then try again.
            while !is_stopped() && self.merge_partition(&name, whole) == Some(false) {}
        }
    }

    /// Merge the segments of a partition that *choose* selects. None: there are none; false: the partition has changed
    /// meanwhile.
    fn merge_partition(
        &self,
        name: &Arc<PartitionName>,
        choose: impl Fn(&Partition) -> Option<Vec<Arc<Segment>>>,
    ) -> Option<bool> {
        let version = self.version.load_full();
        let merging = choose(self.partition(&version.partitions, name)?)?;
        let published = version.number;
        drop(version);
        let mut builder = StoreBuilder::default();
        let mut sources: Vec<(usize, u32)> = Vec::new();
        for (number, segment) in merging.iter().enumerate() {
            // A subscription that a later version removes is copied: that write may be rolled back.
            let alive: Vec<bool> = (0..segment.store.len() as u32).map(|at| !segment.is_gone(at, published)).collect();
            sources.extend((0..).zip(&alive).filter(|(_, alive)| **alive).map(|(at, _)| (number, at)));
            // Together they may exceed a limit: then they stay apart.
            builder.add_store(&segment.store, |at| alive[at as usize]).ok()?;
        }
        let build = || {
            let _inside = fork::inside();
            builder.build(&mut self.sets())
        };
        let store = build();
        let access = self.access(&store);
        let merge = |store| Segment::new(store, &self.seed, self.options.depth, Some(&access));
        let merged = if store.is_empty() { None } else { Some(merge(store).ok()?) };
        let moves = merged.as_ref().map_or_else(Vec::new, |merged| moves(&merging, &sources, merged));
        let _inside = fork::inside();
        let mut writer = self.lock_writer();
        let version = self.version.load_full();
        let Some(partition) = self.partition(&version.partitions, name) else {
            return Some(false);
        };
        let is_there = |segment: &Arc<Segment>| partition.segments.iter().any(|other| Arc::ptr_eq(segment, other));
        if !merging.iter().all(is_there) {
            return Some(false);
        }
        let mut segments: Vec<Arc<Segment>> =
            partition.segments.iter().filter(|other| !merging.iter().any(|one| Arc::ptr_eq(one, other))).cloned().collect();
        if let Some(merged) = merged {
            let merged = Arc::new(merged);
            for (number, old, new) in moves {
                match merging[number].removed_at(old) {
                    0 => writer.locations[merged.store.slots[new as usize] as usize] = new,
                    version => merged.remove(new, version),
                }
            }
            if merged.live() > 0 {
                segments.push(merged);
            }
        }
        if large_merge(&segments).is_some() {
            writer.merges.push(name.clone());
        }
        let mut next = Version::after(&version);
        // Its keys are those of its sources, which the filter has.
        self.put(
            &mut next,
            Partition { name: name.clone(), segments, filter: partition.filter.clone(), share: None, section: None },
        );
        self.publish(&mut writer, next);
        self.telemetry.merged();
        Some(true)
    }
}

/// The source segment and position of each subscription, and its position in *merged*. Building the index has
/// renumbered them, so only their slots, which are unique, identify them.
fn moves(segments: &[Arc<Segment>], sources: &[(usize, u32)], merged: &Segment) -> Vec<(usize, u32, u32)> {
    let slot = |&(number, at): &(usize, u32)| segments[number].store.slots[at as usize];
    let mut from: Vec<(u32, usize, u32)> = sources.iter().map(|source| (slot(source), source.0, source.1)).collect();
    let mut to: Vec<(u32, u32)> = merged.store.slots.iter().copied().zip(0..).collect();
    from.sort_unstable();
    to.sort_unstable();
    debug_assert!(from.iter().map(|from| from.0).eq(to.iter().map(|to| to.0)));
    from.into_iter().zip(to).map(|((_, number, old), (_, new))| (number, old, new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Addition, Engine, Event, Options, Scratch, Selection, WriteMode};
    use crate::subscriptions::normal_form::{Atom, Clause, Conjunction, Mode, NormalForm, Path, Root};
    use crate::value::Scalar;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::thread::{scope, yield_now};

    /// A subscription to events whose `a` is its id, or something else.
    fn asks(id: &str, value: &str) -> Addition {
        let atoms = vec![Atom::Equal(Scalar::String(value.into()))];
        let clause = Clause { path: Path::new(Root::Data, ["a"]), mode: Mode::Scalar, atoms };
        let form =
            NormalForm { conjunctions: vec![Conjunction { clauses: vec![clause] }], verify: None, ..NormalForm::default() };
        Addition { tenant: "t".into(), collection: Some("c".into()), ..Addition::new(id, form, id.as_bytes()) }
    }

    fn write(engine: &Engine, additions: impl Iterator<Item = Addition>) {
        engine.write(additions.map(Ok).collect(), WriteMode::Replace, false).unwrap();
    }

    /// The value of a subscription: few values, and in no order, so that an index stores subscriptions in another order
    /// than that in which they were added.
    fn value(n: u64) -> String {
        format!("v{}", ((n * 2_654_435_761) >> 7) % 30)
    }

    /// A hundred subscriptions. A write runs up to the point of publishing; *meanwhile* has read the engine by then,
    /// and waits for its turn; then the write is published, or rolled back.
    fn beside(is_taken_back: bool, one: impl Fn(&Engine) + Sync, meanwhile: impl Fn(&Engine) + Sync) -> Engine {
        let (entered, has_entered) = channel();
        let (release, may_go_on) = channel();
        let gate = Mutex::new((entered, may_go_on));
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = is_armed.clone();
        let before_publish = move || {
            if armed.swap(false, Ordering::Relaxed) {
                let gate = gate.lock().unwrap();
                gate.0.send(()).unwrap();
                gate.1.recv().unwrap();
                assert!(!is_taken_back, "this write is rolled back");
            }
        };
        let options = Options { before_publish: Some(Arc::new(before_publish)), background: false, ..Options::default() };
        let engine = Engine::new(options);
        for range in [0..70, 70..100] {
            write(&engine, range.map(|n| asks(&format!("s{n}"), &value(n))));
        }
        assert_eq!((engine.shape().1, engine.filters().len()), (2, 1));
        let came = engine.came.load(Ordering::Relaxed);
        is_armed.store(true, Ordering::Relaxed);
        scope(|scope| {
            let writer = scope.spawn(|| one(&engine));
            has_entered.recv().unwrap();
            let other = scope.spawn(|| meanwhile(&engine));
            // Both threads have come to the lock: the writer and the other one.
            while engine.came.load(Ordering::Relaxed) < came + 2 {
                yield_now();
            }
            release.send(()).unwrap();
            assert_eq!(writer.join().is_err(), is_taken_back);
            other.join().unwrap();
        });
        engine
    }

    /// Every subscription but some is found by its value.
    fn assert_found(engine: &Engine, but: &[u64]) {
        let mut found = Vec::new();
        for n in 0..30 {
            let event = format!(r#"{{"data":{{"a":"v{n}"}}}}"#);
            let mut scratch = Scratch::default();
            let slots = engine.match_event(Event::new(event.as_bytes(), Some("t"), Some("c")), &mut scratch).unwrap().certain;
            found.extend(slots.iter().map(|slot| engine.record(*slot).map(|record| record.id().to_owned())));
        }
        let mut expected: Vec<_> = (0..100).filter(|n| !but.contains(n)).map(|n| Some(format!("s{n}"))).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(engine.len(), expected.len());
    }

    fn replace(engine: &Engine) {
        write(engine, [asks("s7", "other")].into_iter());
    }

    #[test]
    fn an_engine_that_settles_has_one_segment_and_finds_the_same() {
        let engine = Engine::new(Options::default());
        (0..100).for_each(|n| write(&engine, [asks(&format!("s{n}"), &value(n))].into_iter()));
        assert!(engine.shape().1 > 1);
        engine.settle();
        for _ in 0..3000 {
            if engine.shape().1 == 1 {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(engine.shape().1, 1);
        assert_found(&engine, &[]);
    }

    #[test]
    fn a_merge_loses_nothing_of_a_write_that_is_taken_back() {
        assert_found(&beside(true, replace, |engine| engine.merge()), &[]);
    }

    #[test]
    fn a_rebuilt_filter_lacks_no_key_of_a_write_that_is_taken_back() {
        let name = PartitionName { tenant: "t".into(), collection: "c".into() };
        assert_found(&beside(true, replace, |engine| assert!(engine.rebuild_filter(&name, 1000, 0.001))), &[]);
    }

    #[test]
    fn what_is_removed_beside_a_merge_is_what_the_merge_leaves_out() {
        let removed = [3, 71, 75, 80, 84, 88, 90, 92, 95];
        let ids = removed.map(|n: u64| format!("s{n}"));
        let ids = ids.each_ref().map(String::as_str);
        let remove = |engine: &Engine| {
            engine.remove(&Selection { ids: Some(&ids), ..Selection::default() });
        };
        let engine = beside(false, remove, |engine| engine.merge());
        assert_found(&engine, &removed);
        // Freed slots are reused by other subscriptions, which are found as themselves.
        write(&engine, removed.into_iter().map(|n| asks(&format!("s{n}"), &value(n))));
        engine.merge();
        assert_found(&engine, &[]);
    }
}
