//! Limits on JSON documents beyond the grammar.

/// The deepest nesting of arrays and objects that a request body may have.
pub const DEPTH_MAX: usize = 127;

/// Returns the depth of the nesting of arrays and objects in well-formed JSON. The parser does not
/// count the depth of values that it skips, so it is counted here.
pub fn depth(json: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut in_string = false;
    let mut escaped = false;
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
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
    fn brackets_in_strings_are_not_counted() {
        assert_eq!(depth(br#"{"a\\\"[[": [{}, []]}"#), 3);
    }
}
