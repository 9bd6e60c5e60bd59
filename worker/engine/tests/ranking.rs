//! `predict` properties.

use std::collections::HashSet;

use assay_engine::{
    EXACT_ITEMS_MAX, Event, Model, PredictOptions, RankedItem, Ranking, Refusal, Scratch, Sequence,
};

use crate::support::{
    ONE_LEVEL, Package, Rng, SMALL, Sizes, THREE_LEVELS, events, random_ids, sequence,
};

/// Predicts with parameters that must be accepted.
pub fn predict<'a>(
    model: &'a Model,
    sequence: &Sequence<'a>,
    top_k: Option<usize>,
    exclude_seen: bool,
) -> Ranking<'a> {
    let options = PredictOptions {
        top_k,
        exclude_seen,
    };
    model
        .predict(&mut Scratch::default(), sequence, &options, &|| false)
        .unwrap()
}

/// Returns all catalog items, ranked exactly.
fn exact<'a>(model: &'a Model, events: &'a [Event<'a>], all: &'a [&'a str]) -> Ranking<'a> {
    let sequence = Sequence {
        options: Some(all),
        ..sequence(events)
    };
    predict(model, &sequence, None, false)
}

fn all_items(model: &Model) -> Vec<&str> {
    let items = model.items().unwrap();
    (0..items.len())
        .filter_map(|at| items.item_at(at))
        .collect()
}

/// The id and the score's bits.
fn bits<'a>(item: &RankedItem<'a>) -> (&'a str, Option<u32>) {
    (item.item_id, item.score.map(f32::to_bits))
}

fn ids<'a>(ranking: &Ranking<'a>) -> Vec<&'a str> {
    ranking.items.iter().map(|item| item.item_id).collect()
}

#[test]
fn top_items_equal_the_exact_ranking() {
    let shapes = [
        (1, 60, 50),
        (2, 12, 100),
        (3, 8, 60),
        (3, 33, 400),
        (5, 4, 90),
    ];
    for (levels, base_size, n_items) in shapes {
        let sizes = Sizes {
            levels,
            base_size,
            n_items,
            ..SMALL
        };
        let model = Package::random(&sizes, 1).load().unwrap();
        let all = all_items(&model);
        for seed in 0..20 {
            let mut rng = Rng(seed);
            let n_events = rng.below(15);
            let history = random_ids(&sizes, n_events, &mut rng);
            let events = events(&history);
            let exact = exact(&model, &events, &all);
            for top_k in [1, 10, n_items] {
                let found = predict(&model, &sequence(&events), Some(top_k), false);
                assert!(found.is_exact);
                assert_eq!(found.items, exact.items[..top_k]);
            }
        }
    }
}

/// The benchmark models have more codes than one logit group, and full panels.
#[test]
fn large_models_rank_as_exactly() {
    for sizes in [ONE_LEVEL, THREE_LEVELS] {
        let model = Package::random(&sizes, 2).load().unwrap();
        let all = all_items(&model);
        let history = random_ids(&sizes, 50, &mut Rng(3));
        let events = events(&history);
        let exact = exact(&model, &events, &all);
        let found = predict(&model, &sequence(&events), Some(500), false);
        assert_eq!(found.items, exact.items[..500]);
        let total: f64 = exact
            .items
            .iter()
            .map(|item| f64::from(item.score.unwrap()).exp())
            .sum();
        // All codes with one level are items; with three levels, only some are.
        assert!(
            total < 1.001 && (sizes.levels > 1 || total > 0.999),
            "{total}"
        );
    }
}

/// A larger catalog is searched by a beam: each item has its exact score, and a better one may be
/// missing.
#[test]
fn ranking_of_a_larger_catalog_is_not_exact() {
    for (n_items, is_exact) in [(EXACT_ITEMS_MAX, true), (EXACT_ITEMS_MAX + 1, false)] {
        let sizes = Sizes {
            base_size: 64,
            n_items,
            ..SMALL
        };
        let model = Package::random(&sizes, 2).load().unwrap();
        let all = all_items(&model);
        let mut misses = 0;
        for seed in 0..30 {
            let history = random_ids(&sizes, 10, &mut Rng(seed));
            let events = events(&history);
            let exact = exact(&model, &events, &all);
            let found = predict(&model, &sequence(&events), Some(10), false);
            assert_eq!((found.items.len(), found.is_exact), (10, is_exact));
            misses += usize::from(found.items != exact.items[..10]);
            let exact_bits: HashSet<_> = exact.items.iter().map(bits).collect();
            let has_its_score = |item: &RankedItem<'_>| exact_bits.contains(&bits(item));
            assert!(found.items.iter().all(has_its_score));
            assert!(
                found
                    .items
                    .is_sorted_by(|one, other| one.score >= other.score)
            );
            let options = Sequence {
                options: Some(&all[..3]),
                ..sequence(&events)
            };
            assert!(predict(&model, &options, None, false).is_exact);
        }
        assert_eq!(misses == 0, is_exact, "{misses}");
    }
}

#[test]
fn option_score_does_not_depend_on_other_options() {
    let model = Package::random(&SMALL, 4).load().unwrap();
    let all = all_items(&model);
    let mut rng = Rng(5);
    let history = random_ids(&SMALL, 7, &mut rng);
    let events = events(&history);
    let together: HashSet<_> = exact(&model, &events, &all)
        .items
        .iter()
        .map(bits)
        .collect();
    for item_id in &all {
        let alone = [*item_id];
        let ranked = exact(&model, &events, &alone).items;
        assert!(together.contains(&bits(&ranked[0])));
    }
}

#[test]
fn unknown_options_come_last_in_request_order() {
    let model = Package::random(&SMALL, 6).load().unwrap();
    let options = ["zebra", "item-3", "apple", "item-1", "0-0-0"];
    let sequence = Sequence {
        options: Some(&options),
        ..Sequence::default()
    };
    let ranked = predict(&model, &sequence, None, false);
    assert_eq!(ids(&ranked)[2..], ["zebra", "apple", "0-0-0"]);
    assert!(ranked.items[2..].iter().all(|item| item.score.is_none()));
    assert!(ranked.items[0].score > ranked.items[1].score);
    let cut = predict(&model, &sequence, Some(3), false);
    assert_eq!(cut.items, ranked.items[..3]);
    let none = Sequence {
        options: Some(&[]),
        ..sequence
    };
    assert_eq!(predict(&model, &none, None, false).items, []);
}

#[test]
fn seen_items_are_excluded() {
    let model = Package::random(&SMALL, 7).load().unwrap();
    let all = all_items(&model);
    for n_seen in [1, 20, 59, 60] {
        // More events than the model looks back on: all count.
        let history: Vec<String> = (0..n_seen).map(|at| format!("item-{at}")).collect();
        let mut given = events(&history);
        given.push(Event {
            item_id: "zebra",
            event_type: None,
        });
        let remaining: HashSet<&str> = all
            .iter()
            .copied()
            .filter(|item_id| !history.iter().any(|seen| seen == item_id))
            .collect();
        for top_k in [1, 10, 500] {
            let found = predict(&model, &sequence(&given), Some(top_k), true);
            assert_eq!(found.items.len(), top_k.min(remaining.len()));
            assert!(
                ids(&found)
                    .iter()
                    .all(|item_id| remaining.contains(item_id))
            );
        }
        let mut options = all.clone();
        options.extend(["zebra", "apple"]);
        let with_options = Sequence {
            options: Some(&options),
            ..sequence(&given)
        };
        let ranked = predict(&model, &with_options, None, true);
        let (known, unknown) = ranked.items.split_at(remaining.len());
        assert!(known.iter().all(|item| remaining.contains(item.item_id)));
        assert_eq!(
            unknown.iter().map(bits).collect::<Vec<_>>(),
            [("apple", None)]
        );
        // The scores do not change by exclusion.
        let without: HashSet<_> = predict(&model, &with_options, None, false)
            .items
            .iter()
            .map(bits)
            .collect();
        assert!(
            ranked
                .items
                .iter()
                .all(|item| without.contains(&bits(item)))
        );
    }
}

/// Gives codes equal rows in a head, so that their items have equal scores.
fn with_ties(sizes: &Sizes) -> Package {
    let mut package = Package::random(sizes, 8);
    let last = sizes.levels - 1;
    let dim = sizes.dim;
    let head = package.tensor(&format!("heads.{last}.weight"));
    let row = head.values[..dim].to_vec();
    for code in 0..sizes.base_size {
        head.values[code * dim..][..dim].copy_from_slice(&row);
    }
    package
}

#[test]
fn equal_scores_are_ordered_by_code() {
    for levels in [1, 2] {
        let sizes = Sizes {
            levels,
            base_size: 40,
            n_items: 30,
            ..SMALL
        };
        let model = with_ties(&sizes).load().unwrap();
        let items = model.items().unwrap();
        let mut all = all_items(&model);
        all.reverse();
        let exact = exact(&model, &[], &all);
        let found = predict(&model, &Sequence::default(), Some(30), false);
        assert_eq!(found.items, exact.items);
        let order = |item: &RankedItem<'_>| {
            let score = item.score.unwrap();
            (-score, items.position_of(item.item_id).unwrap())
        };
        assert!(
            exact
                .items
                .is_sorted_by(|one, other| order(one) < order(other))
        );
        let distinct: HashSet<_> = exact.items.iter().map(|item| bits(item).1).collect();
        assert!(distinct.len() < 30, "there are no ties");
    }
}

#[test]
fn top_k_above_number_of_items_returns_all() {
    let model = Package::random(&SMALL, 9).load().unwrap();
    let found = predict(&model, &Sequence::default(), Some(usize::MAX), false);
    assert_eq!(found.items.len(), SMALL.n_items);
    assert_eq!(
        predict(&model, &Sequence::default(), Some(0), false).items,
        []
    );
    assert_eq!(
        predict(&model, &Sequence::default(), None, false)
            .items
            .len(),
        10
    );
}

#[test]
fn model_without_items_ranks_codes() {
    let sizes = Sizes {
        n_items: 0,
        ..SMALL
    };
    let model = Package::random(&sizes, 10).load().unwrap();
    assert!(model.items().is_none());
    let options = PredictOptions::default();
    let mut scratch = Scratch::default();
    let refused = model.predict(&mut scratch, &Sequence::default(), &options, &|| false);
    assert_eq!(refused.unwrap_err(), Refusal::NoItemTable);
    let history = ["1-2-3".to_owned(), "item-1".to_owned(), "7-0-7".to_owned()];
    let events = events(&history);
    let given = ["0-0-0", "8-0-0", "7-7-7", "07-7-7"];
    let sequence = Sequence {
        options: Some(&given),
        ..sequence(&events)
    };
    let ranked = predict(&model, &sequence, None, false);
    assert_eq!(ids(&ranked)[2..], ["8-0-0", "07-7-7"]);
    assert!(ranked.items[..2].iter().all(|item| item.score.is_some()));
    assert_eq!((ranked.counts.n_used, ranked.counts.n_unknown), (2, 1));
}

#[test]
fn weights_that_overflow_are_refused() {
    let mut package = Package::random(&SMALL, 11);
    package.tensor("norm.weight").values.fill(3e38);
    let model = package.load().unwrap();
    let options = PredictOptions::default();
    let mut scratch = Scratch::default();
    for options_given in [None, Some(&["item-1"][..])] {
        let sequence = Sequence {
            options: options_given,
            ..Sequence::default()
        };
        let refused = model.predict(&mut scratch, &sequence, &options, &|| false);
        assert_eq!(refused.unwrap_err(), Refusal::NotFinite);
    }
}
