//! Reading, joining and scoring, on one core: `cargo bench -p assay-worker`. Items a second and bytes a second are of the
//! submission. What whole processes take, and others beside them, is in `tests/peers/compare.py`.

use std::ops::ControlFlow;

use assay_eval::prediction::{Layout, Prediction, Stream};
use assay_eval::score::{AnswerTable, Builder, Prefetch, Progress, Scorer, score};
use assay_eval::{Answer, FieldError, Metric};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

fn main() {
    divan::main();
}

/// Numbers that look random and are the same each time.
fn mixed(at: usize) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 100_000
}

fn table(metric: Metric, n: usize) -> AnswerTable {
    let mut builder = Builder::new(metric, n);
    for at in 0..n {
        let answer = Answer::Label(format!("dish-{:05}", mixed(at * 10 + at % 12)).into());
        builder
            .push(&format!("q{at:09}"), &answer)
            .unwrap_or_else(|error| unreachable!("{error}"));
    }
    builder
        .finish()
        .unwrap_or_else(|error| unreachable!("{error}"))
}

/// A line an item with ten ids; in the suite's order, or far from it.
fn lines(n: usize, in_order: bool) -> Vec<String> {
    let line = |at: usize| {
        let ids: Vec<String> = (0..10)
            .map(|place| format!("\"dish-{:05}\"", mixed(at * 10 + place)))
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
    let (table, document) = (table(Metric::Accuracy, n), lines(n, in_order).join("\n"));
    bencher
        .counter(ItemsCount::new(n))
        .counter(BytesCount::of_str(&document))
        .bench_local(|| {
            let progress = Progress::default();
            let prefetch = Prefetch::default();
            let mut tally = Scorer::new(&table, Metric::Accuracy, &progress, &prefetch);
            let mut ahead = |item_ids: &[&str]| prefetch.load(&table, item_ids);
            let mut stream = Stream::new(Layout::Lines);
            let mut each =
                |next: assay_core::Result<Prediction<'_, '_>, FieldError>| tally.add(next);
            for piece in document.as_bytes().chunks(256 * 1024) {
                assert!(matches!(
                    stream.feed_ahead(piece, &mut ahead, &mut each),
                    ControlFlow::Continue(())
                ));
            }
            assert!(matches!(
                stream.finish(&mut each),
                ControlFlow::Continue(())
            ));
            tally.finish().map(|score| score.figures.value)
        });
}

/// 4.9 MB, as much as a submission may have.
#[divan::bench(args = ["accuracy", "ndcg@10"], sample_count = 100)]
fn an_inline_submission_of_29_000_items(bencher: Bencher, metric: &str) {
    let metric: Metric = metric.parse().unwrap_or(Metric::Accuracy);
    let (table, document) = (
        table(metric, 29_000),
        format!("[{}]", lines(29_000, true).join(",")),
    );
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
