//! A submission by gRPC: its predictions are written as the JSON that REST takes.

use assay_proto::convert::{CreateEvalFields, CreateEvalReader, Unreadable};
use assay_proto::v1;
use assay_proto::v1::prediction_value::Value;
use prost::Message as _;

use super::told::{Predicted, Told, inline};

/// What a message holds is what is read from the JSON that is made of it, an element each.
pub fn messages(data: &[u8]) {
    let (message, found) = match (v1::CreateEvalRequest::decode(data), read(data.to_vec())) {
        (Ok(message), Ok(found)) => (message, found),
        (Err(_), Err(_)) => return,
        (decoded, found) => panic!("{decoded:?}, {found:?}"),
    };
    assert_eq!(
        (&message.suite_id, &message.input_ref, &message.label),
        (&found.suite_id, &found.input_ref, &found.label)
    );
    assert_eq!(
        (&message.idempotency_key, message.predictions.is_empty()),
        (&found.idempotency_key, found.predictions.is_none())
    );
    // What was understood is written and understood again.
    let again = v1::CreateEvalRequest::decode(message.encode_to_vec().as_slice()).unwrap();
    // A number that is none is not equal to itself.
    assert!(again == message || format!("{message:?}").contains("NaN"));
    if message.predictions.is_empty() {
        return;
    }
    // As clients write it: no label comes twice in a map.
    let json = read(message.encode_to_vec()).unwrap().predictions.unwrap();
    let (told, ended) = inline(&json, usize::MAX);
    assert!(ended.is_ok(), "{}", String::from_utf8_lossy(&json));
    let mut rest = told.as_slice();
    for (at, prediction) in message.predictions.iter().enumerate() {
        let v1::Prediction {
            item_id,
            prediction,
        } = prediction;
        let predicted = match prediction
            .as_ref()
            .and_then(|prediction| prediction.value.clone())
        {
            Some(Value::Label(label)) => Some(Predicted::Label(label)),
            Some(Value::Ranking(v1::Ranking { ids })) => Some(Predicted::Ranking(ids)),
            Some(Value::Number(number)) => Some(Predicted::Number(number.to_bits())),
            Some(Value::Probabilities(v1::Probabilities { by_label })) => Some(Predicted::Weights(
                by_label
                    .into_iter()
                    .map(|(label, weight)| (label, weight.to_bits()))
                    .collect(),
            )),
            None => None,
        };
        let plain = |text: &str| !text.contains('\0');
        let fine = predicted.as_ref().is_some_and(|predicted| {
            predicted.is_finite() && predicted.texts().into_iter().all(plain)
        });
        let named = format!("predictions[{at}]");
        if fine && plain(item_id) && (1..=512).contains(&item_id.len()) {
            let (first, behind) = rest.split_first().unwrap();
            assert_eq!(
                *first,
                Told::Prediction {
                    named,
                    item_id: item_id.clone(),
                    predicted: predicted.unwrap()
                }
            );
            rest = behind;
        } else {
            let faults =
                rest.iter().take_while(|told| matches!(told, Told::Fault(fault) if fault.field.starts_with(&format!("{named}.")))).count();
            assert!(faults > 0, "{prediction:?}");
            rest = &rest[faults..];
        }
    }
    assert_eq!(rest, []);
}

/// Reads a message in small steps: where one ends makes no difference.
fn read(message: Vec<u8>) -> Result<CreateEvalFields, Unreadable> {
    let mut reader = CreateEvalReader::new(message.into(), usize::MAX);
    while reader.step(64)? >= 64 {}
    Ok(reader.finish())
}
