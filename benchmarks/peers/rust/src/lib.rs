//! What the Rust drivers share: reading the files, the clock, the line of results.
//!
//! The clock counts the time that the thread was on a core, so that a busy neighbour adds less; all seconds are those.
//!
//! `$WARM_S` and `$MEASURE_S` say how long to warm up and to measure, `$CUT_S` after how long a first pass is cut (then the
//! result says how many events were read), `$EVENT_LIMIT` how many events to read.

/// For every driver in Rust the one that Streamer's binding has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A build that takes longer is given up.
pub const BUILD_LIMIT_S: f64 = 300.0;

/// What a driver is to do.
pub struct Args {
    /// Its name.
    pub workload: String,
    /// One JSON text each.
    pub events: Vec<Vec<u8>>,
    /// Ids and JSON texts.
    pub patterns: Vec<(u32, String)>,
    /// What was resident when all this had been read.
    read_kb: u64,
}

fn from_environment<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Read the command line: WORKLOAD EVENTS PATTERNS.
pub fn args() -> Args {
    let args: Vec<String> = std::env::args().collect();
    let lines = |path: &str| -> Vec<String> { std::fs::read_to_string(path).expect(path).lines().map(str::to_owned).collect() };
    let most = from_environment("EVENT_LIMIT", usize::MAX);
    let mut given = Args {
        workload: args[1].clone(),
        events: lines(&args[2]).into_iter().take(most).map(String::into_bytes).collect(),
        patterns: lines(&args[3]).iter().map(|line| split(line)).collect(),
        read_kb: 0,
    };
    give_back();
    given.read_kb = memory_kb("VmRSS");
    given
}

/// `{"id":N,"pattern":{..}}` to N and `{..}`.
fn split(line: &str) -> (u32, String) {
    let (id, rest) = line.strip_prefix("{\"id\":").and_then(|rest| rest.split_once(",\"pattern\":")).expect("id and pattern");
    (id.parse().expect("an id"), rest[..rest.len() - 1].to_owned())
}

/// Say why there is no result, and exit.
pub fn skip(peer: &str, workload: &str, reason: &str) -> ! {
    println!(r#"{{"peer":"{peer}","workload":"{workload}","skip":"{}"}}"#, reason.replace(['"', '\\'], "'"));
    std::process::exit(0)
}

/// The most memory that this process has had.
pub fn peak_mb() -> u64 {
    memory_kb("VmHWM") / 1024
}

fn memory_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or("0");
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

/// Have the allocator give back what is free, so that what is resident is what is held.
fn give_back() {
    // SAFETY: mimalloc is the allocator, and any thread may call this at any time.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// Nanoseconds that this (single) thread has been on a core: what a busy neighbour does not add to.
fn cpu_ns() -> f64 {
    cpu_time::ThreadTime::now().as_duration().as_nanos() as f64
}

fn seconds_since(begun: f64) -> f64 {
    (cpu_ns() - begun) / 1e9
}

/// `ids` appends the matched ids of one event (for the checksum of the first pass); `count` is the timed call: it does the
/// whole match and returns how many matched.
///
/// What the matcher holds is told as what is resident beyond what had been read, before any event but the first.
pub fn measure(
    peer: &str,
    given: &Args,
    build_s: f64,
    mut ids: impl FnMut(&[u8], &mut Vec<u32>),
    mut count: impl FnMut(&[u8]) -> usize,
) {
    give_back();
    let held_kb = memory_kb("VmRSS").saturating_sub(given.read_kb);
    let (workload, events) = (&given.workload, &given.events);
    let (warm_s, measure_s, cut_s) =
        (from_environment("WARM_S", 2.0), from_environment("MEASURE_S", 3.0), from_environment("CUT_S", 60.0));
    let (mut total, mut check, mut found, mut read) = (0_usize, 0_u64, Vec::new(), 0_usize);
    let begun = cpu_ns();
    for (at, event) in events.iter().enumerate() {
        found.clear();
        ids(event, &mut found);
        total += found.len();
        for id in &found {
            let pair = (at as u64).wrapping_mul(1_000_003).wrapping_add(u64::from(*id));
            check = check.wrapping_add(pair.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        }
        read += 1;
        if read % 16 == 0 && seconds_since(begun) > cut_s {
            break;
        }
    }
    let (mut best, mut passes) = (seconds_since(begun), 1);
    if best < cut_s {
        let mut pass = || events.iter().map(|event| count(event)).sum::<usize>();
        while seconds_since(begun) < warm_s {
            pass();
        }
        (best, passes) = (f64::MAX, 0);
        let begun = cpu_ns();
        while passes == 0 || seconds_since(begun) < measure_s {
            let begun = cpu_ns();
            assert_eq!(pass(), total, "passes disagree");
            best = best.min(seconds_since(begun));
            passes += 1;
        }
    }
    println!(
        r#"{{"peer":"{peer}","workload":"{workload}","best_ns":{:.1},"events":{read},"passes":{passes},"matches":{total},"check":"{check:016x}","build_s":{build_s:.3},"held_kb":{held_kb},"rss_mb":{}}}"#,
        best / read as f64 * 1e9,
        peak_mb()
    );
}
