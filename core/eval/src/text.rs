//! Numbers as people read them.

use std::fmt::Display;

/// Returns a metric's value with four significant digits.
pub fn figure(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return String::from("0");
    }
    if !(1e-4..1e6).contains(&magnitude) {
        return format!("{value:.3e}").replace('-', "−");
    }
    let decimals = match magnitude {
        1e4.. => 0,
        1e3.. => 1,
        1e2.. => 2,
        1e1.. => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    text.replace('-', "−")
}

/// Returns an integer with commas between thousands.
pub fn count(value: impl Display) -> String {
    let number = value.to_string();
    let digits = number.trim_start_matches('-');
    let mut text = String::from(if number.len() > digits.len() {
        "−"
    } else {
        ""
    });
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
