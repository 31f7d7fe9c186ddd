//! CEL: no expression and no event makes its parser or evaluator panic or work past its budget.

use std::sync::{Arc, LazyLock};

use streamer_core::cel::{self, Arena, Document, EvaluationScratch, Executable, Reason, Verdict};
use streamer_core::flatten::{CallerParts, Flattener, PathTrie, Validation};
use streamer_core::layout::EventLayout;
use streamer_core::limits::Limits;

const BUDGET: u64 = 20_000;

/// Evaluate the expression before the first zero byte of *data* for the event behind it, and its old side. With a budget of
/// just its cost it comes to the same, with one unit less it is stopped. Returns how many verdicts there were.
pub fn expression(data: &[u8]) -> usize {
    static TRIE: LazyLock<PathTrie> = LazyLock::new(|| PathTrie::builder(Arc::new(EventLayout::default())).build());
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (source, event) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let limits = Limits::default();
    let Ok(source) = std::str::from_utf8(source) else { return 0 };
    let Ok(program) = cel::compile(source, &limits) else { return 0 };
    let Ok(executable) = Executable::new(Arc::new(program)) else { return 0 };
    let given = CallerParts { default_tenant: Some("default"), ..CallerParts::default() };
    let (mut flattener, arena, mut scratch) = (Flattener::new(), Arena::default(), EvaluationScratch::default());
    let Ok(flat) = flattener.flatten(&TRIE, event, Validation::Full, &given, &limits) else { return 0 };
    let document = Document::new(&flat, &arena, &limits).expect("an event that was checked in full");
    for side in [document.as_before(), document] {
        let mut evaluate = |budget| executable.evaluate(&side, budget, &mut scratch).expect("an event that was checked in full");
        let whole = evaluate(BUDGET);
        assert_eq!(whole.verdict == Verdict::Error, whole.reason.is_some());
        if whole.reason == Some(Reason::Budget) {
            assert!(whole.cost > BUDGET, "{source}");
            continue;
        }
        assert!(whole.cost <= BUDGET, "{source}");
        assert_eq!(evaluate(whole.cost), whole, "{source}");
        if whole.cost > 0 {
            let less = evaluate(whole.cost - 1);
            assert_eq!(less.reason, Some(Reason::Budget), "{source}");
        }
        let (same, words) = executable.evaluate_in_words(&side, BUDGET, &mut scratch).expect("an event that was checked in full");
        assert_eq!((same, words.is_empty()), (whole, whole.reason.is_none()), "{source}");
    }
    2
}
