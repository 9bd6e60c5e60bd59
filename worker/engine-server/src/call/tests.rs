use assay_inference::tensors::TensorsBuilder;

use super::*;

/// Returns a request with these parameters and two rows: two events, and one.
fn request(
    parameters: &[(&str, &str)],
    change: impl FnOnce(&mut TensorsBuilder),
) -> ModelInferRequest {
    let mut tensors = TensorsBuilder::default();
    tensors.push(ids::ITEM_IDS, &[2, 2], ["ramen", "curry", "salad"]);
    tensors.push(ids::LENGTHS, &[2, 1], [2_i64, 1]);
    change(&mut tensors);
    let mut request = ModelInferRequest::default();
    tensors.into_request(&mut request);
    for (name, value) in parameters {
        let value = match (value.parse::<i64>(), value.parse::<bool>()) {
            (Ok(number), _) if *name != ids::SEED => number.into(),
            (_, Ok(boolean)) => boolean.into(),
            _ => (*value).into(),
        };
        request.parameters.insert((*name).to_owned(), value);
    }
    request
}

fn predict(change: impl FnOnce(&mut TensorsBuilder)) -> ModelInferRequest {
    request(&[(ids::OPERATION, "predict")], change)
}

fn error(request: &ModelInferRequest) -> String {
    Call::read(request).unwrap_err().to_string()
}

fn rows(texts: &Texts) -> Vec<Option<Vec<&str>>> {
    (0..texts.len())
        .map(|row| Some(texts.row(row)?.collect()))
        .collect()
}

#[test]
fn predict_reads_events_types_and_options() {
    let call = request(
        &[
            (ids::OPERATION, "predict"),
            (ids::TOP_K, "3"),
            (ids::EXCLUDE_SEEN, "true"),
            (ids::ON_LONG, "refuse"),
            (ids::ON_UNKNOWN, "refuse"),
        ],
        |tensors| {
            tensors.push(ids::TYPES, &[2, 2], ["view", "", "buy"]);
            tensors.push(ids::OPTIONS, &[2, 3], ["a", "b", "", "c"]);
            tensors.push(ids::OPTION_COUNTS, &[2, 1], [2_i64, ids::NO_OPTIONS]);
        },
    );
    let call = Call::read(&call).unwrap();
    assert_eq!(call.rows(), 2);
    assert_eq!(
        rows(&call.events),
        [Some(vec!["ramen", "curry"]), Some(vec!["salad"])]
    );
    let types = rows(call.types.as_ref().unwrap()).concat_rows();
    assert_eq!(types, ["view", "", "buy"]);
    assert_eq!(
        (call.on_long, call.on_unknown),
        (OnLong::Refuse, OnUnknown::Refuse)
    );
    let Operation::Predict {
        options,
        parameters,
    } = call.operation
    else {
        panic!("predict");
    };
    assert_eq!(rows(&options), [Some(vec!["a", "b"]), None]);
    let expected = PredictOptions {
        top_k: Some(3),
        exclude_seen: true,
    };
    assert_eq!(parameters, expected);
}

trait ConcatRows<'t> {
    fn concat_rows(self) -> Vec<&'t str>;
}

impl<'t> ConcatRows<'t> for Vec<Option<Vec<&'t str>>> {
    fn concat_rows(self) -> Vec<&'t str> {
        self.into_iter().flatten().flatten().collect()
    }
}

#[test]
fn defaults_are_those_of_the_protocol() {
    let call = Call::read(&predict(|_| {})).unwrap();
    assert_eq!(
        (call.on_long, call.on_unknown),
        (OnLong::Truncate, OnUnknown::Skip)
    );
    assert_eq!(call.types, None);
    let embed = request(&[(ids::OPERATION, "embed")], |_| {});
    let expected = Operation::Embed(EmbedOptions {
        pooling: Pooling::Last,
        normalize: true,
    });
    assert_eq!(Call::read(&embed).unwrap().operation, expected);
    let generate = request(
        &[(ids::OPERATION, "generate"), (ids::N_EVENTS, "5")],
        |_| {},
    );
    let Operation::Generate { parameters, .. } = Call::read(&generate).unwrap().operation else {
        panic!("generate");
    };
    let expected = GenerateOptions {
        n_events: 5,
        n_continuations: 1,
        mode: GenerateMode::Beam,
        exclude_seen: false,
    };
    assert_eq!(parameters, [expected, expected]);
}

#[test]
fn sample_reads_temperatures_seed_and_sequence_ids() {
    let seed = u64::MAX.to_string();
    let parameters = [
        (ids::OPERATION, "generate"),
        (ids::N_EVENTS, "2"),
        (ids::MODE, "sample"),
        (ids::SEED, seed.as_str()),
    ];
    let sample = request(&parameters, |tensors| {
        tensors.push(ids::SEQUENCE_IDS, &[2, 1], ["p1", "p2"]);
        tensors.push(ids::TEMPERATURE, &[2, 1], [0.5_f64, 2.0]);
    });
    let Operation::Generate {
        sequence_ids,
        parameters: read,
    } = Call::read(&sample).unwrap().operation
    else {
        panic!("generate");
    };
    assert_eq!(rows(&sequence_ids).concat_rows(), ["p1", "p2"]);
    let modes: Vec<GenerateMode> = read.iter().map(|options| options.mode).collect();
    let mode = |temperature| GenerateMode::Sample {
        temperature,
        seed: u64::MAX,
    };
    assert_eq!(modes, [mode(0.5), mode(2.0)]);
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-320] {
        let sample = request(&parameters, |tensors| {
            tensors.push(ids::SEQUENCE_IDS, &[2, 1], ["p1", "p2"]);
            tensors.push(ids::TEMPERATURE, &[2, 1], [1.0, temperature]);
        });
        assert!(
            error(&sample).contains("positive numbers only"),
            "{temperature}"
        );
    }
    let missing = request(&parameters[..3], |tensors| {
        tensors.push(ids::SEQUENCE_IDS, &[2, 1], ["p1", "p2"]);
    });
    assert!(error(&missing).contains("`seed` is missing"));
}

#[test]
fn hostile_tensors_are_rejected() {
    let with_lengths = |lengths: [i64; 2]| {
        let mut tensors = TensorsBuilder::default();
        tensors.push(ids::ITEM_IDS, &[2, 2], ["a"]);
        tensors.push(ids::LENGTHS, &[2, 1], lengths);
        let mut request = request(&[(ids::OPERATION, "predict")], |_| {});
        tensors.into_request(&mut request);
        request
    };
    for lengths in [[-1, 0], [3, 0], [i64::MAX, 0], [i64::MIN, 0]] {
        assert_eq!(
            error(&with_lengths(lengths)),
            "The tensor `lengths` must have numbers from 0 to 2."
        );
    }
    let options = |counts: [i64; 2]| {
        predict(|tensors| {
            tensors.push(ids::OPTIONS, &[2, 1], ["a", "b"]);
            tensors.push(ids::OPTION_COUNTS, &[2, 1], counts);
        })
    };
    assert!(Call::read(&options([0, 1])).is_ok());
    for counts in [[-2, 0], [2, 0]] {
        assert!(error(&options(counts)).contains("`option_counts` must have numbers from 0 to 1"));
    }
    let without_counts = predict(|tensors| tensors.push(ids::OPTIONS, &[2, 1], ["a", "b"]));
    assert!(error(&without_counts).contains("`option_counts` is missing"));
    let types = predict(|tensors| tensors.push(ids::TYPES, &[2, 1], ["a", "b"]));
    assert!(error(&types).contains("`types` must have the shape of `item_ids`"));
    let rows = predict(|tensors| tensors.push(ids::OPTIONS, &[3, 1], ["a", "b", "c"]));
    assert!(error(&rows).contains("must have 2 rows"));
}

#[test]
fn number_of_rows_is_limited() {
    for rows in [0, ids::ROWS_MAX + 1] {
        let mut tensors = TensorsBuilder::default();
        tensors.push::<&str>(ids::ITEM_IDS, &[rows, 1], []);
        tensors.push::<i64>(ids::LENGTHS, &[rows, 1], []);
        let mut request = predict(|_| {});
        tensors.into_request(&mut request);
        assert_eq!(
            error(&request),
            "The tensor `item_ids` must have 1 to 64 rows."
        );
    }
}

#[test]
fn parameters_out_of_range_are_rejected() {
    for (name, value, message) in [
        (ids::TOP_K, "0", "`top_k` must be from 1 to 500"),
        (ids::TOP_K, "501", "`top_k` must be from 1 to 500"),
        (ids::TOP_K, "-1", "`top_k` must be from 1 to 500"),
        (ids::TOP_K, "many", "`top_k` must be an integer"),
        (
            ids::ON_LONG,
            "cut",
            "`on_long` must be `truncate` or `refuse`",
        ),
        (ids::ON_UNKNOWN, "1", "`on_unknown` must be a string"),
        (ids::EXCLUDE_SEEN, "1", "`exclude_seen` must be a boolean"),
        ("top_n", "1", "unknown parameter"),
    ] {
        let request = request(&[(ids::OPERATION, "predict"), (name, value)], |_| {});
        assert!(error(&request).contains(message), "{}", error(&request));
    }
    for (name, value, message) in [
        (ids::N_EVENTS, "51", "`n_events` must be from 1 to 50"),
        (
            ids::N_CONTINUATIONS,
            "11",
            "`n_continuations` must be from 1 to 10",
        ),
        (ids::MODE, "greedy", "`mode` must be `beam` or `sample`"),
    ] {
        let given = [
            (ids::OPERATION, "generate"),
            (ids::N_EVENTS, "5"),
            (name, value),
        ];
        assert!(error(&request(&given, |_| {})).contains(message));
    }
    assert!(
        error(&request(&[(ids::OPERATION, "generate")], |_| {})).contains("`n_events` is missing")
    );
    for operation in ["score", "1"] {
        let request = request(&[(ids::OPERATION, operation)], |_| {});
        assert!(
            error(&request).contains("`operation` must be"),
            "{}",
            error(&request)
        );
    }
    let unknown = predict(|tensors| tensors.push(ids::EMBEDDING, &[2, 1], [1.0_f32]));
    assert!(error(&unknown).contains("unknown input"));
}

#[test]
fn errors_quote_no_elements() {
    let canary = "canary-7f3a";
    let request = request(
        &[(ids::OPERATION, canary), (ids::ON_LONG, canary)],
        |tensors| {
            tensors.push(canary, &[2, 1], [canary]);
        },
    );
    assert!(!error(&request).contains(canary), "{}", error(&request));
    let wrong_shape = predict(|tensors| tensors.push(ids::TYPES, &[1, 1], [canary]));
    assert!(!error(&wrong_shape).contains(canary));
}
