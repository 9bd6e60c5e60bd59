//! A receipt's badge: an SVG image with the title, the value and its interval.

use crate::resources::Statement;
use crate::text::{figure, line, shortened, xml};

/// The longest title on a badge, in characters.
const TITLE_MAX: usize = 40;

/// The widths of the badge's characters, in pixels. Other scripts than Latin have wider ones.
const NARROW: f64 = 6.6;
const WIDE: f64 = 12.0;

/// The space next to a text, in pixels.
const MARGIN: f64 = 8.0;

/// Returns the badge as SVG of at most 2 KB, without script and link. `title` is the suite's.
pub fn badge(title: &str, statement: &Statement) -> String {
    let claim = &statement.predicate;
    let title = shortened(line(title).trim(), TITLE_MAX);
    let interval = claim.ci95.map_or_else(String::new, |[low, high]| {
        format!(" [{}, {}]", figure(low), figure(high))
    });
    let metric = shortened(&line(&claim.metric), TITLE_MAX);
    let value = format!("{metric} {}{interval}", figure(claim.value));
    let [left, right] = [&title, &value].map(|text| width(text));
    let [left_box, right_box] = [left, right].map(|width| width + 2.0 * MARGIN);
    let total = left_box + right_box;
    let [title, value] = [&title, &value].map(|text| xml(text));
    // `textLength` fits the text into its box, whichever font is used.
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{total:.0}\" height=\"20\" role=\"img\">\
         <title>{title}: {value}</title>\
         <rect width=\"{left_box:.0}\" height=\"20\" fill=\"#444\"/>\
         <rect x=\"{left_box:.0}\" width=\"{right_box:.0}\" height=\"20\" fill=\"#0b5394\"/>\
         <g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\">\
         <text x=\"{MARGIN}\" y=\"14\" textLength=\"{left:.0}\" lengthAdjust=\"spacingAndGlyphs\">{title}</text>\
         <text x=\"{:.0}\" y=\"14\" textLength=\"{right:.0}\" lengthAdjust=\"spacingAndGlyphs\">{value}</text>\
         </g></svg>\n",
        left_box + MARGIN
    )
}

/// Returns a text's width, in pixels.
fn width(text: &str) -> f64 {
    text.chars()
        .map(|character| match character.is_ascii() {
            true => NARROW,
            false => WIDE,
        })
        .sum()
}
