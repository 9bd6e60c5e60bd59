//! Benchmarks for reading, matching and scoring predictions on one core: `cargo bench -p
//! assay-worker`. Items and bytes per second are those of the submission. `tests/peers/compare.py`
//! measures whole processes, and other tools for comparison.

use std::ops::ControlFlow;

use assay_eval::prediction::{Layout, Stream};
use assay_eval::score::{AnswerTable, Builder, Progress, Scorer, score};
use assay_eval::{Answer, Metric};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

fn main() {
    divan::main();
}

/// Returns a pseudo-random number below 100,000, always the same for the same index.
fn pseudo_random(at: usize) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 100_000
}

fn table(metric: Metric, n: usize) -> AnswerTable {
    let mut builder = Builder::new(metric, n);
    for at in 0..n {
        let answer = Answer::Label(format!("dish-{:05}", pseudo_random(at * 10 + at % 12)).into());
        builder
            .push(&format!("q{at:09}"), &answer)
            .unwrap_or_else(|error| unreachable!("{error}"));
    }
    builder
        .finish()
        .unwrap_or_else(|error| unreachable!("{error}"))
}

/// Returns a line with ten ids for each item, in the suite's order or far from it.
fn lines(n: usize, in_order: bool) -> Vec<String> {
    let line = |at: usize| {
        let ids: Vec<String> = (0..10)
            .map(|place| format!("\"dish-{:05}\"", pseudo_random(at * 10 + place)))
            .collect();
        format!(
            "{{\"item_id\":\"q{at:09}\",\"prediction\":[{}]}}",
            ids.join(",")
        )
    };
    (0..n)
        .map(|at| line(if in_order { at } else { at * 7919 % n }))
        .collect()
}

#[divan::bench(args = [(100_000, true), (100_000, false), (1_000_000, true), (1_000_000, false)], sample_count = 10)]
fn lines_in_a_stream(bencher: Bencher, (n, in_order): (usize, bool)) {
    let table = table(Metric::Accuracy, n);
    let document = lines(n, in_order).join("\n");
    bencher
        .counter(ItemsCount::new(n))
        .counter(BytesCount::of_str(&document))
        .bench_local(|| {
            let progress = Progress::default();
            let mut scorer = Scorer::new(&table, Metric::Accuracy, &progress);
            let mut stream = Stream::new(Layout::Lines);
            for piece in document.as_bytes().chunks(256 * 1024) {
                assert!(matches!(
                    stream.feed(piece, &mut scorer),
                    ControlFlow::Continue(())
                ));
            }
            assert!(matches!(
                stream.finish(&mut scorer),
                ControlFlow::Continue(())
            ));
            scorer.finish().map(|score| score.figures.value)
        });
}

/// Scores 4.9 MB, about the largest inline submission.
#[divan::bench(args = ["accuracy", "ndcg@10"], sample_count = 100)]
fn an_inline_submission_of_29_000_items(bencher: Bencher, metric: &str) {
    let metric: Metric = metric.parse().unwrap_or(Metric::Accuracy);
    let table = table(metric, 29_000);
    let document = format!("[{}]", lines(29_000, true).join(","));
    bencher
        .counter(ItemsCount::new(29_000_usize))
        .counter(BytesCount::of_str(&document))
        .bench_local(|| {
            score(
                &table,
                None,
                metric,
                document.as_bytes(),
                &Progress::default(),
            )
            .map(|score| score.figures.value)
        });
}
