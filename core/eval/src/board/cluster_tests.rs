//! Simulated boards whose items are in clusters.

use super::tests::n_boards;
use super::*;
use crate::clusters::Clusters;
use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::simulation::{Persons, Sizes, assert_at_most};

/// Returns the standings of entries with these values of the items, the best entry first.
fn board(metric: Metric, values: Vec<Vec<f64>>, clusters: Option<&Clusters>) -> Vec<Standing> {
    let mut entries: Vec<(f64, EntryItems)> = values
        .into_iter()
        .map(|values| {
            let mut builder = ItemScoresBuilder::new(Kind::Scores, values.len(), 0.0, false);
            for (item, value) in values.iter().enumerate() {
                builder.set(item, *value);
            }
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let better = if metric.lower_is_better() {
                -mean
            } else {
                mean
            };
            let items = EntryItems::new(metric, &builder.finish(), mean, true, clusters);
            (better, items)
        })
        .collect();
    entries.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    standings(entries.len(), |earlier, later| {
        test_pair(metric, &entries[earlier].1, &entries[later].1)
    })
}

#[test]
fn equal_models_are_one_tier() {
    let boards = n_boards();
    for metric in [Metric::Accuracy, Metric::LogLoss] {
        for n_persons in [20, 50, 150] {
            let false_orders = |boards: u64, is_clustered: bool| {
                let has_order = |seed: &u64| {
                    let persons = Persons::draw(*seed, n_persons, 10, Sizes::Equal);
                    let values = (0..10).map(|name| match metric {
                        Metric::Accuracy => persons.hits(name),
                        _ => persons.losses[name].clone(),
                    });
                    let clusters = is_clustered.then_some(&persons.clusters);
                    let standings = board(metric, values.collect(), clusters);
                    standings.iter().any(|standing| standing.rank_low > 1)
                };
                (0..boards).filter(has_order).count() as u64
            };
            let what = format!("false orders, {metric}, {n_persons} persons");
            assert_at_most(&what, false_orders(boards, true), boards, 0.065);
            // The test for independent items is slow.
            let boards = if boards < 1_000 { 20 } else { boards };
            let by_item = false_orders(boards, false) as f64 / boards as f64;
            println!("by item: {:.1} %", 100.0 * by_item);
            assert!(by_item >= 0.1, "{what}: {by_item}");
        }
    }
}

#[test]
fn better_models_are_separated() {
    let persons = Persons::draw(1, 200, 2, Sizes::Equal);
    let clusters = Some(&persons.clusters);
    let better = |shift: f64| persons.losses[0].iter().map(|loss| loss - shift).collect();
    for metric in [Metric::LogLoss, Metric::Rmse] {
        let values = vec![better(0.0), better(0.2), better(-0.3)];
        let standings = board(metric, values, clusters);
        let tiers: Vec<u32> = standings.iter().map(|standing| standing.tier).collect();
        assert_eq!(tiers, [1, 2, 3], "{metric}");
    }
    // The mean of the stored contributions is the value for other metrics.
    let higher = board(Metric::Auc, vec![better(0.3), better(0.0)], clusters);
    assert_eq!(
        higher.iter().map(|one| one.tier).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn ten_clusters_separate_no_pair_of_ten_entries() {
    // 2^(1 - 10) is above 0.05/45.
    let clusters = Clusters::from_labels((0..90).map(|item| item / 9));
    let values = |entry: usize| (0..90).map(move |item| ((entry + item % 3) % 13) as f64);
    let entries: Vec<Vec<f64>> = (0..10).map(|entry| values(entry).collect()).collect();
    let found = board(Metric::Mae, entries.clone(), Some(&clusters));
    assert!(found.iter().all(|standing| standing.tier == 1));
    let found = board(Metric::Mae, entries, None);
    assert!(found.iter().any(|standing| standing.tier > 1));
}
