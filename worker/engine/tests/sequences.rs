//! Reading and encoding sequences.

use assay_engine::{
    EmbedOptions, Event, Model, OnLong, OnUnknown, Pooling, PredictOptions, Refusal, Scratch,
    Sequence,
};

use crate::support::{Package, Rng, SMALL, Sizes, events, random_ids, sequence};

/// Everything that the operations compute for a sequence, as bits.
fn results(model: &Model, scratch: &mut Scratch, sequence: &Sequence<'_>) -> Vec<u32> {
    let mut bits = Vec::new();
    for pooling in [Pooling::Last, Pooling::Mean] {
        let options = EmbedOptions {
            pooling,
            normalize: pooling == Pooling::Mean,
        };
        let found = model.embed(scratch, sequence, &options, &|| false).unwrap();
        bits.extend(found.vector.iter().map(|value| value.to_bits()));
    }
    let options = PredictOptions::default();
    let found = model
        .predict(scratch, sequence, &options, &|| false)
        .unwrap();
    for item in &found.items {
        let position = model.items().unwrap().position_of(item.item_id).unwrap();
        bits.extend([position as u32, item.score.unwrap().to_bits()]);
    }
    bits
}

fn fresh(model: &Model, sequence: &Sequence<'_>) -> Vec<u32> {
    results(model, &mut Scratch::default(), sequence)
}

/// Counts events that entered the model and that were unknown.
fn counts(model: &Model, sequence: &Sequence<'_>) -> (usize, usize, bool) {
    let options = PredictOptions::default();
    let ranking = model.predict(&mut Scratch::default(), sequence, &options, &|| false);
    let counts = ranking.unwrap().counts;
    (counts.n_used, counts.n_unknown, counts.is_cold())
}

const TYPED: Sizes = Sizes {
    event_types: &["view", "buy"],
    ..SMALL
};

/// Returns random events, some unknown, with known, unknown and absent types.
fn random_events<'a>(ids: &'a [String], rng: &mut Rng) -> Vec<Event<'a>> {
    let types = [None, Some("view"), Some("buy"), Some("return")];
    ids.iter()
        .map(|item_id| Event {
            item_id: if rng.below(5) == 0 { "zebra" } else { item_id },
            event_type: types[rng.below(4)],
        })
        .collect()
}

/// "Alone" is a call with its own buffers, "among others" one with buffers that computed another
/// sequence before.
#[test]
fn result_is_the_same_alone_and_among_others() {
    let mut typed = TYPED;
    typed.activation = "gelu";
    let models = [
        Package::random(&typed, 1).load().unwrap(),
        Package::random(
            &Sizes {
                dim: 20,
                heads: 5,
                layers: 1,
                levels: 2,
                base_size: 40,
                ..TYPED
            },
            2,
        )
        .load()
        .unwrap(),
    ];
    let mut rng = Rng(3);
    let mut shared = Scratch::default();
    for _ in 0..10_000 {
        let (n, n_other) = (rng.below(16), rng.below(16));
        let ids = random_ids(&TYPED, n, &mut rng);
        let other_ids = random_ids(&TYPED, n_other, &mut rng);
        let events = random_events(&ids, &mut rng);
        let other_events = random_events(&other_ids, &mut rng);
        let (model, other_model) = (&models[rng.below(2)], &models[rng.below(2)]);
        results(other_model, &mut shared, &sequence(&other_events));
        assert_eq!(
            results(model, &mut shared, &sequence(&events)),
            fresh(model, &sequence(&events))
        );
    }
}

#[test]
fn truncation_equals_sending_last_events() {
    let model = Package::random(&TYPED, 4).load().unwrap();
    let mut rng = Rng(5);
    for _ in 0..200 {
        let n = 12 + rng.below(20);
        let ids = random_ids(&TYPED, n, &mut rng);
        let all: Vec<Event<'_>> = random_events(&ids, &mut rng)
            .into_iter()
            .filter(|event| event.item_id != "zebra")
            .collect();
        let start = all.len().saturating_sub(TYPED.context_length);
        assert_eq!(
            fresh(&model, &sequence(&all)),
            fresh(&model, &sequence(&all[start..]))
        );
        assert_eq!(
            counts(&model, &sequence(&all)),
            (all.len() - start, 0, false)
        );
    }
}

#[test]
fn unknown_events_equal_leaving_them_out() {
    let model = Package::random(&TYPED, 6).load().unwrap();
    let mut rng = Rng(7);
    for _ in 0..200 {
        let n = rng.below(30);
        let ids = random_ids(&TYPED, n, &mut rng);
        let all = random_events(&ids, &mut rng);
        let known: Vec<Event<'_>> = all
            .iter()
            .copied()
            .filter(|event| event.item_id != "zebra")
            .collect();
        assert_eq!(
            fresh(&model, &sequence(&all)),
            fresh(&model, &sequence(&known))
        );
        let n_used = known.len().min(TYPED.context_length);
        assert_eq!(
            counts(&model, &sequence(&all)),
            (n_used, all.len() - known.len(), n_used == 0)
        );
    }
}

#[test]
fn history_of_unknown_events_is_empty() {
    let model = Package::random(&SMALL, 8).load().unwrap();
    let ids = vec!["zebra".to_owned(); 40];
    let unknown = events(&ids);
    assert_eq!(
        fresh(&model, &sequence(&unknown)),
        fresh(&model, &sequence(&[]))
    );
    assert_eq!(counts(&model, &sequence(&unknown)), (0, 40, true));
    assert_eq!(counts(&model, &sequence(&[])), (0, 0, true));
}

#[test]
fn event_types_change_the_result_only_if_known() {
    let model = Package::random(&TYPED, 9).load().unwrap();
    let with = |event_type| {
        let events = [Event {
            item_id: "item-1",
            event_type,
        }];
        fresh(&model, &sequence(&events))
    };
    assert_ne!(with(Some("view")), with(Some("buy")));
    assert_ne!(with(Some("view")), with(None));
    assert_eq!(with(Some("return")), with(None));
    let untyped = Package::random(&SMALL, 9).load().unwrap();
    let events = [Event {
        item_id: "item-1",
        event_type: Some("view"),
    }];
    let ids = ["item-1".to_owned()];
    assert_eq!(
        fresh(&untyped, &sequence(&events)),
        fresh(&untyped, &sequence(&crate::support::events(&ids)))
    );
}

#[test]
fn strict_sequences_are_refused() {
    let model = Package::random(&SMALL, 10).load().unwrap();
    let embed = |sequence: &Sequence<'_>| {
        let options = EmbedOptions {
            pooling: Pooling::Last,
            normalize: true,
        };
        model.embed(&mut Scratch::default(), sequence, &options, &|| false)
    };
    let ids: Vec<String> = (0..13).map(|at| format!("item-{at}")).collect();
    let events = events(&ids);
    let strict = |events| Sequence {
        on_long: OnLong::Refuse,
        on_unknown: OnUnknown::Refuse,
        ..sequence(events)
    };
    let too_long = Refusal::TooLong {
        n_events: 13,
        context_length: 12,
    };
    assert_eq!(embed(&strict(&events)).unwrap_err(), too_long);
    // Unknown events are left out first, so this sequence is short enough.
    let mut with_unknown = events.clone();
    with_unknown[4].item_id = "zebra";
    let refused = embed(&strict(&with_unknown)).unwrap_err();
    assert_eq!(refused, Refusal::UnknownItem { event: 4 });
    assert!(refused.to_string().contains("events[4].item_id"));
    let skipped = Sequence {
        on_unknown: OnUnknown::Skip,
        ..strict(&with_unknown)
    };
    assert_eq!(embed(&skipped).unwrap().counts.n_used, 12);
}

#[test]
fn embedding_has_length_one() {
    let mut package = Package::random(&SMALL, 11);
    for tensor in ["norm.weight", "norm.bias"] {
        for value in &mut package.tensor(tensor).values {
            *value *= 1e-30;
        }
    }
    let small = package.load().unwrap();
    let model = Package::random(&SMALL, 11).load().unwrap();
    let ids = ["item-1".to_owned(), "item-2".to_owned()];
    let events = events(&ids);
    for model in [&model, &small] {
        for pooling in [Pooling::Last, Pooling::Mean] {
            let options = EmbedOptions {
                pooling,
                normalize: true,
            };
            let found = model
                .embed(
                    &mut Scratch::default(),
                    &sequence(&events),
                    &options,
                    &|| false,
                )
                .unwrap();
            let squares = found.vector.iter().map(|value| value * value).sum::<f32>();
            assert!((squares - 1.0).abs() < 1e-5, "{squares}");
        }
    }
    // A zero vector has no direction and stays as it is.
    package.tensor("norm.weight").values.fill(0.0);
    package.tensor("norm.bias").values.fill(0.0);
    let options = EmbedOptions {
        pooling: Pooling::Last,
        normalize: true,
    };
    let zero = package.load().unwrap();
    let found = zero.embed(
        &mut Scratch::default(),
        &sequence(&events),
        &options,
        &|| false,
    );
    assert!(found.unwrap().vector.iter().all(|value| *value == 0.0));
}

#[test]
fn stopped_computation_is_refused() {
    let model = Package::random(&SMALL, 12).load().unwrap();
    let options = PredictOptions::default();
    let stopped = model.predict(&mut Scratch::default(), &sequence(&[]), &options, &|| true);
    assert_eq!(stopped.unwrap_err(), Refusal::Stopped);
}
