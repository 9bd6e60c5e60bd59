//! The cost of clusters and slices: `cargo bench -p assay-worker --bench groups`.
//!
//! Scores a million predictions with `log_loss`, in turn without groups, with persons as clusters, and
//! also with slices by five fields. The output has the CPU time of each, divided by that without groups,
//! and the bytes of the answers per item. Then it tests pairs of entries of a board, without clusters and
//! with 10,000.

use std::hint::black_box;
use std::time::Duration;

use assay_eval::board::{EntryItems, test_pair};
use assay_eval::score::{AnswerTable, Builder, Progress, Score, Scorer, score_and_hash};
use assay_eval::slices::FieldSlices;
use assay_eval::{Answer, Metric};
use nix::time::{ClockId, clock_gettime};

const ITEMS: usize = 1_000_000;

/// Items of a person.
const ITEMS_EACH: usize = 9;

/// Rounds, of which the fastest counts.
const ROUNDS: usize = 5;

/// Pairs of entries that are tested. A board of 1,000 entries has 499,500.
const PAIRS: usize = 20;

/// The groups that a table has.
#[derive(Clone, Copy, PartialEq)]
enum Groups {
    None,
    Clusters { items_each: usize },
    ClustersAndSlices,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let predictions = predictions(0.8);
    let persons = Groups::Clusters {
        items_each: ITEMS_EACH,
    };
    let kinds = [
        ("without groups", Groups::None),
        ("111,112 clusters", persons),
        (
            "111,112 clusters, slices by five fields",
            Groups::ClustersAndSlices,
        ),
    ];
    let tables: Vec<AnswerTable> = kinds
        .iter()
        .map(|(_, groups)| table(*groups))
        .collect::<Result<_, _>>()?;
    let mut fastest = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        for (table, fastest) in tables.iter().zip(&mut fastest) {
            let began = cpu_time()?;
            black_box(score(table, &predictions)?);
            *fastest = (cpu_time()? - began).min(*fastest);
        }
    }
    for (((name, _), table), time) in kinds.iter().zip(&tables).zip(fastest) {
        println!(
            "scoring {ITEMS} items, {name}: {:.3} s of CPU time, {:.2} times; {:.1} bytes an item",
            time.as_secs_f64(),
            time.as_secs_f64() / fastest[0].as_secs_f64(),
            table.bytes() as f64 / ITEMS as f64
        );
    }
    let one = score(&tables[0], &predictions)?;
    let other = score(&tables[0], &self::predictions(0.7))?;
    let large = table(Groups::Clusters { items_each: 100 })?;
    let mut pair_seconds = [0.0; 2];
    for (table, seconds) in [&tables[0], &large].into_iter().zip(&mut pair_seconds) {
        let [one, other] = [&one, &other].map(|score| {
            let value = score.figures.value;
            EntryItems::new(Metric::LogLoss, &score.items, value, true, table.clusters())
        });
        let began = cpu_time()?;
        for _ in 0..PAIRS {
            black_box(test_pair(Metric::LogLoss, &one, &other));
        }
        *seconds = (cpu_time()? - began).as_secs_f64() / PAIRS as f64;
    }
    println!(
        "test of a pair of entries: {:.3} ms without clusters, {:.3} ms with 10,000: {:.4} times",
        1e3 * pair_seconds[0],
        1e3 * pair_seconds[1],
        pair_seconds[1] / pair_seconds[0]
    );
    Ok(())
}

fn cpu_time() -> Result<Duration, nix::Error> {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from)
}

fn score(table: &AnswerTable, predictions: &[u8]) -> Result<Score, Failure> {
    let progress = Progress::default();
    let scorer = Scorer::new(table, Metric::LogLoss, &progress);
    let scored = score_and_hash(scorer, predictions);
    Ok(scored.map_err(|failure| format!("{failure:?}"))?.0)
}

fn table(groups: Groups) -> Result<AnswerTable, Failure> {
    let mut builder = Builder::new(Metric::LogLoss, ITEMS);
    if groups == Groups::ClustersAndSlices {
        let fields = (0..5).map(|field| {
            let groups = (0..10).map(|group| format!("group {group}"));
            FieldSlices::new(format!("field {field}"), groups.collect())
        });
        builder = builder.slices(fields.collect());
    }
    for at in 0..ITEMS {
        let label = ["a", "b", "c"][at * 7919 % 3];
        builder.push(&format!("q{at:09}"), &Answer::Label(label.into()))?;
        let items_each = match groups {
            Groups::None => continue,
            Groups::Clusters { items_each } => items_each,
            Groups::ClustersAndSlices => ITEMS_EACH,
        };
        let person = at / items_each;
        builder.put_into_cluster(person as u32);
        if groups == Groups::ClustersAndSlices {
            builder.put_into_slices(&[1, 3, 7, 11, 13].map(|step| (person * step % 10) as u8));
        }
    }
    Ok(builder.finish()?)
}

/// Returns predictions that give the label `a` a probability between 0 and `most`.
fn predictions(most: f64) -> Vec<u8> {
    let line = |at: usize| {
        let share = most * ((at * 7919 % 1000) as f64 / 1000.0);
        let rest = (1.0 - share) / 2.0;
        format!(
            r#"{{"item_id":"q{at:09}","prediction":{{"a":{share:.6},"b":{rest:.6},"c":{rest:.6}}}}}"#
        )
    };
    let lines: Vec<String> = (0..ITEMS).map(line).collect();
    format!("[{}]", lines.join(",")).into_bytes()
}
