//! Users' texts in other formats.

use assay_eval::suite::is_bidirectional;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The characters that a path segment must not have.
const NOT_IN_SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'&')
    .add(b'=')
    .add(b'+');

/// Returns a text with line breaks as the only control characters, without characters that change the
/// text's direction and without code points that XML and YAML forbid.
pub fn lines(text: &str) -> String {
    let unbroken = text.replace("\r\n", "\n");
    let visible = unbroken
        .chars()
        .filter(|character| !is_bidirectional(*character) && *character != '\u{feff}');
    visible
        .map(|character| match character {
            '\n' => '\n',
            '\u{2028}' | '\u{2029}' => ' ',
            _ if character.is_control() => ' ',
            _ if is_noncharacter(character) => char::REPLACEMENT_CHARACTER,
            _ => character,
        })
        .collect()
}

/// Returns a text in one line, with the changes that [`lines`] makes.
pub fn line(text: &str) -> String {
    lines(text).replace('\n', " ")
}

fn is_noncharacter(character: char) -> bool {
    let code = u32::from(character);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// Returns a figure for people: three decimals, or three significant digits for very small and very large values.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(0.001..1e6).contains(&size) {
        format!("{value:.2e}")
    } else {
        format!("{value:.3}")
    }
}

/// Returns a text as a YAML scalar in double quotes, which no YAML version reads as another type.
pub fn yaml(text: &str) -> String {
    let mut scalar = String::from('"');
    for character in lines(text).chars() {
        match character {
            '"' => scalar.push_str("\\\""),
            '\\' => scalar.push_str("\\\\"),
            '\n' => scalar.push_str("\\n"),
            _ => scalar.push(character),
        }
    }
    scalar.push('"');
    scalar
}

/// Returns a text in one line for a BibTeX value in braces. LaTeX prints it as it is, and its braces are
/// balanced: BibTeX counts escaped ones too.
pub fn latex(text: &str) -> String {
    let mut value = String::new();
    for character in line(text).chars() {
        match character {
            '\\' => value.push_str("{\\textbackslash}"),
            '{' => value.push_str("{\\textbraceleft}"),
            '}' => value.push_str("{\\textbraceright}"),
            '~' => value.push_str("{\\textasciitilde}"),
            '^' => value.push_str("{\\textasciicircum}"),
            '&' | '%' | '$' | '#' | '_' => value.extend(['\\', character]),
            _ => value.push(character),
        }
    }
    value
}

/// Returns a text in one line for XML, in elements and in attributes.
pub fn xml(text: &str) -> String {
    let mut escaped = String::new();
    for character in line(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Returns a text as a URL's path segment.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_SEGMENT).to_string()
}

/// Returns a text cut after this many characters, with an ellipsis if some are missing.
pub fn shortened(text: &str, max: usize) -> String {
    let mut characters = text.chars();
    let mut kept: String = characters.by_ref().take(max).collect();
    if characters.next().is_some() {
        kept.pop();
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_stay_within_their_format() {
        let hostile = "a\"b\\c{d}e\u{202e}f\u{0}g\r\nh&<]]>'\u{ffff}_";
        assert_eq!(line(hostile), "a\"b\\c{d}ef g h&<]]>'\u{fffd}_");
        assert_eq!(yaml(hostile), "\"a\\\"b\\\\c{d}ef g\\nh&<]]>'\u{fffd}_\"");
        assert_eq!(
            latex(hostile),
            "a\"b{\\textbackslash}c{\\textbraceleft}d{\\textbraceright}ef g h\\&<]]>'\u{fffd}\\_"
        );
        assert_eq!(
            xml(hostile),
            "a&quot;b\\c{d}ef g h&amp;&lt;]]&gt;&#39;\u{fffd}_"
        );
    }

    #[test]
    fn figures_have_three_digits() {
        let figures = [0.0, 0.705, -0.5, 12.0, 0.000_012_3, 2_500_000.0].map(figure);
        assert_eq!(
            figures,
            ["0.000", "0.705", "-0.500", "12.000", "1.23e-5", "2.50e6"]
        );
    }

    #[test]
    fn shortened_text_ends_with_ellipsis() {
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(shortened("abcde", 4), "abc…");
    }
}
