//! Submissions over gRPC, whose predictions are converted to REST's JSON.

use assay_proto::convert::{CreateEvalFields, CreateEvalReader, Unreadable};
use assay_proto::v1;
use assay_proto::v1::prediction_value::Value;
use prost::Message as _;

use super::reader_output::{Output, Predicted, inline};

/// The JSON made from a message has the message's predictions, one element for each.
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
    // A decoded message survives encoding and decoding.
    let again = v1::CreateEvalRequest::decode(message.encode_to_vec().as_slice()).unwrap();
    // NaN does not equal itself.
    assert!(again == message || format!("{message:?}").contains("NaN"));
    if message.predictions.is_empty() {
        return;
    }
    // Encoded as by clients, without repeated labels in a map.
    let json = read(message.encode_to_vec()).unwrap().predictions.unwrap();
    let (outputs, ended) = inline(&json, usize::MAX);
    assert!(ended.is_ok(), "{}", String::from_utf8_lossy(&json));
    let mut rest = outputs.as_slice();
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
            Some(Value::Quantiles(v1::Quantiles { by_level })) => Some(Predicted::Weights(
                by_level
                    .into_iter()
                    .map(|(level, number)| (level, number.to_bits()))
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
                Output::Prediction {
                    named,
                    item_id: item_id.clone(),
                    predicted: predicted.unwrap()
                }
            );
            rest = behind;
        } else {
            let errors =
                rest.iter().take_while(|output| matches!(output, Output::Error(error) if error.field.starts_with(&format!("{named}.")))).count();
            assert!(errors > 0, "{prediction:?}");
            rest = &rest[errors..];
        }
    }
    assert_eq!(rest, []);
}

/// Reads a message in small steps; the result must not depend on their boundaries.
fn read(message: Vec<u8>) -> Result<CreateEvalFields, Unreadable> {
    let mut reader = CreateEvalReader::new(message.into(), usize::MAX);
    while reader.step(64)? >= 64 {}
    Ok(reader.finish())
}
