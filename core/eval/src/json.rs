//! What is demanded of JSON beyond its grammar.

/// How deeply the body of a request may be nested.
pub const DEPTH_MAX: usize = 127;

/// How deeply JSON is nested that is known to be well formed. The parser passes over what it need not look into without
/// counting.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_texts_do_not_count() {
        assert_eq!(depth(br#"{"a\\\"[[": [{}, []]}"#), 3);
    }
}
