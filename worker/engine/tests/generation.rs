//! `generate` properties.

use std::cell::Cell;
use std::collections::HashSet;

use assay_engine::{
    Continuation, GenerateMode, GenerateOptions, Model, Refusal, Scratch, Sequence,
};

use crate::ranking::predict;
use crate::support::{Package, Rng, SMALL, Sizes, events, random_ids, sequence};

const BEAM: GenerateOptions = GenerateOptions {
    n_events: 5,
    n_continuations: 10,
    mode: GenerateMode::Beam,
    exclude_seen: false,
};

fn sample(seed: u64) -> GenerateOptions {
    GenerateOptions {
        mode: GenerateMode::Sample {
            temperature: 1.0,
            seed,
        },
        ..BEAM
    }
}

fn generate<'m>(
    model: &'m Model,
    sequence: &Sequence<'_>,
    sequence_id: &str,
    options: &GenerateOptions,
) -> Vec<Continuation<'m>> {
    let mut scratch = Scratch::default();
    let found = model.generate(&mut scratch, sequence, sequence_id, options, &|| false);
    found.unwrap().continuations
}

fn model(seed: u64) -> Model {
    Package::random(&SMALL, seed).load().unwrap()
}

#[test]
fn generated_items_are_catalog_items() {
    let model = model(1);
    let history = random_ids(&SMALL, 8, &mut Rng(2));
    let events = events(&history);
    for options in [BEAM, sample(3)] {
        let found = generate(&model, &sequence(&events), "p1", &options);
        assert_eq!(found.len(), 10);
        for continuation in found {
            assert_eq!(continuation.item_ids.len(), 5);
            let items = model.items().unwrap();
            assert!(
                continuation
                    .item_ids
                    .iter()
                    .all(|item_id| items.position_of(item_id).is_some())
            );
        }
    }
}

/// Every continuation step has the score that a new request with the longer history returns.
#[test]
fn continuation_equals_new_requests() {
    let model = model(4);
    // The history is about as long as the context, so that steps truncate it.
    let history = random_ids(&SMALL, 10, &mut Rng(5));
    for options in [BEAM, sample(6)] {
        let given = events(&history);
        for continuation in generate(&model, &sequence(&given), "p1", &options) {
            let mut longer = history.clone();
            let mut score = 0.0;
            for item_id in continuation.item_ids {
                let events = events(&longer);
                let option = [item_id];
                let request = Sequence {
                    options: Some(&option),
                    ..sequence(&events)
                };
                score += predict(&model, &request, None, false).items[0]
                    .score
                    .unwrap();
                longer.push(item_id.to_owned());
            }
            assert_eq!(continuation.score.to_bits(), f32::to_bits(score));
        }
    }
}

#[test]
fn beam_returns_most_probable_continuations_first() {
    let model = model(7);
    let found = generate(&model, &sequence(&[]), "p1", &BEAM);
    assert!(found.is_sorted_by(|one, other| one.score >= other.score));
    let distinct: HashSet<&[&str]> = found.iter().map(|one| &one.item_ids[..]).collect();
    assert_eq!(distinct.len(), 10);
    for n_continuations in [1, 4] {
        let options = GenerateOptions {
            n_continuations,
            ..BEAM
        };
        let fewer = generate(&model, &sequence(&[]), "p2", &options);
        assert_eq!(fewer, found[..n_continuations]);
    }
    let one_event = GenerateOptions {
        n_events: 1,
        ..BEAM
    };
    let steps = generate(&model, &sequence(&[]), "p1", &one_event);
    let ranked = predict(&model, &sequence(&[]), Some(10), false).items;
    for (step, item) in steps.iter().zip(ranked) {
        assert_eq!(
            (step.item_ids[0], Some(step.score)),
            (item.item_id, item.score)
        );
    }
}

#[test]
fn same_seed_gives_same_continuations() {
    let model = model(8);
    let history = random_ids(&SMALL, 6, &mut Rng(9));
    let events = events(&history);
    let expected = generate(&model, &sequence(&events), "p1", &sample(10));
    let mut scratch = Scratch::default();
    let mut rng = Rng(11);
    for round in 0..20 {
        // Other sequences, seeds and operations before it, and another continuation count.
        let n_other = rng.below(14);
        let other = random_ids(&SMALL, n_other, &mut rng);
        let other_events = crate::support::events(&other);
        let other_options = if round % 2 == 0 {
            BEAM
        } else {
            sample(rng.bits())
        };
        let mut run = |sequence: &Sequence<'_>, id, options| {
            let found = model.generate(&mut scratch, sequence, id, options, &|| false);
            found.unwrap().continuations
        };
        run(&sequence(&other_events), "p2", &other_options);
        let options = GenerateOptions {
            n_continuations: 1 + round % 10,
            ..sample(10)
        };
        let found = run(&sequence(&events), "p1", &options);
        assert_eq!(found, expected[..options.n_continuations]);
    }
    for (id, seed) in [("p1", 12), ("p2", 10)] {
        assert_ne!(
            generate(&model, &sequence(&events), id, &sample(seed)),
            expected
        );
    }
}

#[test]
fn excluded_items_are_not_generated() {
    let model = model(13);
    let history = random_ids(&SMALL, 20, &mut Rng(14));
    let events = events(&history);
    for options in [BEAM, sample(15)] {
        let options = GenerateOptions {
            n_events: 12,
            exclude_seen: true,
            ..options
        };
        for continuation in generate(&model, &sequence(&events), "p1", &options) {
            let seen: HashSet<&str> = history.iter().map(String::as_str).collect();
            let generated: HashSet<&str> = continuation.item_ids.iter().copied().collect();
            assert_eq!(generated.len(), 12, "an item is repeated");
            assert!(generated.is_disjoint(&seen));
        }
    }
}

#[test]
fn small_catalog_ends_continuations_early() {
    let sizes = Sizes {
        n_items: 4,
        ..SMALL
    };
    let model = Package::random(&sizes, 16).load().unwrap();
    let history = ["item-2".to_owned()];
    let events = events(&history);
    for options in [BEAM, sample(17)] {
        let options = GenerateOptions {
            exclude_seen: true,
            ..options
        };
        let found = generate(&model, &sequence(&events), "p1", &options);
        let n_expected = match options.mode {
            // The possible orders for three items.
            GenerateMode::Beam => 6,
            GenerateMode::Sample { .. } => 10,
        };
        assert_eq!(found.len(), n_expected);
        assert!(
            found
                .iter()
                .all(|continuation| continuation.item_ids.len() == 3)
        );
    }
}

/// Single-event samples are distributed as the items' probabilities, restricted level by level
/// to codes with items.
#[test]
fn samples_follow_the_probabilities() {
    const N: usize = 20_000;
    let sizes = Sizes {
        levels: 1,
        base_size: 12,
        n_items: 9,
        ..SMALL
    };
    let model = Package::random(&sizes, 18).load().unwrap();
    let ranked = predict(&model, &sequence(&[]), None, false).items;
    for temperature in [0.5, 1.0, 2.0] {
        let options = GenerateOptions {
            n_events: 1,
            n_continuations: N,
            mode: GenerateMode::Sample {
                temperature,
                seed: 19,
            },
            exclude_seen: false,
        };
        let found = generate(&model, &sequence(&[]), "p1", &options);
        let weight = |score: Option<f32>| f64::from(score.unwrap() / temperature).exp();
        let total: f64 = ranked.iter().map(|item| weight(item.score)).sum();
        for item in &ranked {
            let expected = weight(item.score) / total;
            let n = found
                .iter()
                .filter(|one| one.item_ids == [item.item_id])
                .count();
            // Five binomial standard deviations.
            let tolerance = 5.0 * (expected * (1.0 - expected) / N as f64).sqrt();
            let share = n as f64 / N as f64;
            assert!(
                (share - expected).abs() <= tolerance,
                "{share} instead of {expected}"
            );
        }
    }
}

#[test]
fn lowest_temperature_draws_the_best_code() {
    let model = model(20);
    let options = GenerateOptions {
        n_events: 1,
        n_continuations: 100,
        mode: GenerateMode::Sample {
            temperature: 0.01,
            seed: 21,
        },
        exclude_seen: false,
    };
    let found = generate(&model, &sequence(&[]), "p1", &options);
    let most_common = |one: &Continuation<'_>| {
        found
            .iter()
            .filter(|other| other.item_ids == one.item_ids)
            .count()
    };
    assert!(found.iter().map(most_common).max() >= Some(90));
}

#[test]
fn threads_share_a_model() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Model>();
}

#[test]
fn model_without_items_generates_nothing() {
    let sizes = Sizes {
        n_items: 0,
        ..SMALL
    };
    let model = Package::random(&sizes, 22).load().unwrap();
    let found = model.generate(
        &mut Scratch::default(),
        &sequence(&[]),
        "p1",
        &BEAM,
        &|| false,
    );
    assert_eq!(found.unwrap_err(), Refusal::NoItemTable);
}

/// Each score is finite, and their sum is not.
#[test]
fn sum_of_scores_that_overflows_is_refused() {
    let sizes = Sizes {
        levels: 1,
        base_size: 3,
        n_items: 3,
        ..SMALL
    };
    let mut package = Package::random(&sizes, 24);
    for name in [
        "norm.weight",
        "mixers.0.weight",
        "mixers.0.bias",
        "heads.0.weight",
    ] {
        package.tensor(name).values.fill(0.0);
    }
    package.tensor("norm.bias").values.fill(1.0);
    package.tensor("heads.0.weight").values[0] = 3e38;
    let model = package.load().unwrap();
    let ranked = predict(&model, &sequence(&[]), None, false).items;
    assert_eq!(ranked[2].score, Some(-3e38));
    for options in [BEAM, sample(25)] {
        let options = GenerateOptions {
            exclude_seen: true,
            ..options
        };
        let mut scratch = Scratch::default();
        let found = model.generate(&mut scratch, &sequence(&[]), "p1", &options, &|| false);
        assert_eq!(found.unwrap_err(), Refusal::NotFinite);
    }
}

#[test]
fn long_generation_stops_between_steps() {
    let model = model(23);
    let n_calls = Cell::new(0);
    let should_stop = || {
        n_calls.set(n_calls.get() + 1);
        n_calls.get() > 30
    };
    let options = GenerateOptions {
        n_events: 50,
        ..BEAM
    };
    let found = model.generate(
        &mut Scratch::default(),
        &sequence(&[]),
        "p1",
        &options,
        &should_stop,
    );
    assert_eq!(found.unwrap_err(), Refusal::Stopped);
    assert_eq!(n_calls.get(), 31);
}
