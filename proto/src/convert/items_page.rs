//! Item pages as encoded messages.

use assay_core::model::suite_items::{SuiteItem, SuiteItems};
use assay_core::{Error, Result};
use prost::Message as _;

use super::struct_writer::{begin, end, write_object, write_string};
use crate::v1;

/// Returns a page as an encoded `ListSuiteItemsResponse`. The inputs are written without a
/// [`Struct`](prost_types::Struct) in memory, which would take up to 90 times their JSON.
///
/// # Errors
/// If an input is not a JSON object.
pub fn encode_items_page(page: SuiteItems) -> Result<Vec<u8>> {
    let SuiteItems {
        suite_id,
        suite_version,
        items,
        n_items,
        next_cursor,
    } = page;
    let mut message = v1::ListSuiteItemsResponse {
        suite_id: suite_id.into(),
        suite_version,
        items: Vec::new(),
        n_items,
        next_cursor: next_cursor.map(|cursor| cursor.to_string()),
    }
    .encode_to_vec();
    for SuiteItem {
        item_id,
        input,
        groups,
    } in items
    {
        let start = begin(&mut message, ITEMS);
        let without_input = v1::SuiteItem {
            item_id,
            input: None,
            input_json: None,
            groups: groups.into_iter().collect(),
        };
        message.extend_from_slice(&without_input.encode_to_vec());
        let input_start = begin(&mut message, INPUT);
        let is_exact = write_object(input.get(), &mut message).map_err(Error::internal)?;
        end(&mut message, input_start);
        if !is_exact {
            write_string(&mut message, INPUT_JSON, input.get());
        }
        end(&mut message, start);
    }
    Ok(message)
}

/// `ListSuiteItemsResponse.items`.
const ITEMS: u32 = 3;

/// `SuiteItem.input`.
const INPUT: u32 = 2;

/// `SuiteItem.input_json`.
const INPUT_JSON: u32 = 3;

#[cfg(test)]
mod tests {
    use assay_core::model::suite_items::ItemCursor;

    use super::super::structs::object;
    use super::*;

    #[test]
    fn encoded_page_is_its_message() {
        let inputs = [
            "{}",
            r#"{"a":[1,-2.5,"x",null,true,{"b":[]},[[]]],"c":{"":{"d":1e300}}}"#,
            r#"{"last":1,"last":2, "wide":"WIDE"}"#,
            r#"{"exact":[9007199254740991,-9007199254740991]}"#,
            r#"{"above":[{"n":9007199254740993}]}"#,
            r#"{"below":-9007199254740993}"#,
            r#"{"beyond_64_bits":123456789012345678901234567890}"#,
        ]
        .map(|input| input.replace("WIDE", &"é".repeat(20_000)));
        let page = SuiteItems {
            suite_id: "suite:lunch".parse().unwrap(),
            suite_version: "2".into(),
            items: inputs
                .iter()
                .enumerate()
                .map(|(number, input)| SuiteItem {
                    item_id: format!("i{number}"),
                    input: serde_json::from_str(input).unwrap(),
                    groups: if number == 1 {
                        [("person".into(), "p1".into())].into()
                    } else {
                        [].into()
                    },
                })
                .collect(),
            n_items: 9,
            next_cursor: Some(ItemCursor::new(
                &"suite:lunch".parse().unwrap(),
                "2".into(),
                3,
            )),
        };
        let cursor = page.next_cursor.as_ref().map(ToString::to_string);
        let encoded = encode_items_page(page).unwrap();
        let message = v1::ListSuiteItemsResponse::decode(&*encoded).unwrap();
        assert_eq!((message.n_items, message.next_cursor), (9, cursor));
        for (number, (item, input)) in message.items.iter().zip(&inputs).enumerate() {
            assert_eq!(item.item_id, format!("i{number}"));
            assert_eq!(
                item.input,
                Some(object(serde_json::from_str(input).unwrap()))
            );
            let is_exact = number == 0 || number == 2 || number == 3;
            let text = (!is_exact).then_some(input);
            assert_eq!(item.input_json.as_ref(), text, "{input}");
        }
        assert_eq!(message.items.len(), inputs.len());
    }
}
