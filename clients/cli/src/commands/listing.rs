//! Listings that are read page by page.

use serde_json::Value;

use crate::client::Request;
use crate::failure::Result;

/// Returns the page's query parameter after this one, with its value. `None` after the last
/// page.
pub fn next_page(page: &Value) -> Option<(&'static str, String)> {
    ["cursor", "before"].into_iter().find_map(|name| {
        let position = page[format!("next_{name}")].as_str()?;
        Some((name, position.to_owned()))
    })
}

/// Returns a listing's entries. `request` creates a page's request; `field` is a page's
/// array.
pub fn entries<'c>(
    request: impl Fn() -> Request<'c>,
    field: &'static str,
) -> impl Iterator<Item = Result<Value>> {
    let mut next = None;
    let mut is_last = false;
    let mut page = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = page.next() {
                return Some(Ok(entry));
            }
            if is_last {
                return None;
            }
            let request = match next.take() {
                Some((name, position)) => request().query(name, position),
                None => request(),
            };
            let mut body = match request.send_json() {
                Ok(body) => body,
                Err(failure) => {
                    is_last = true;
                    return Some(Err(failure));
                }
            };
            next = next_page(&body);
            is_last = next.is_none();
            page = match body[field].take() {
                Value::Array(entries) => entries.into_iter(),
                _ => Vec::new().into_iter(),
            };
        }
    })
}
