//! Listings that are read page by page.

use serde_json::Value;

use crate::client::Request;
use crate::failure::Result;

/// Returns the entries of a listing. `request` creates the request of a page; `field` is the array
/// of a page, `token` the parameter of the next one: `next_` and its name is a field of a page.
pub fn entries<'c>(
    request: impl Fn() -> Request<'c>,
    field: &'static str,
    token: &'static str,
) -> impl Iterator<Item = Result<Value>> {
    let mut position: Option<String> = None;
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
            let mut body = match request().query_if(token, position.take()).send_json() {
                Ok(body) => body,
                Err(failure) => {
                    is_last = true;
                    return Some(Err(failure));
                }
            };
            let next = &body[format!("next_{token}")];
            position = next.as_str().map(str::to_owned);
            is_last = position.is_none();
            page = match body[field].take() {
                Value::Array(entries) => entries.into_iter(),
                _ => Vec::new().into_iter(),
            };
        }
    })
}
