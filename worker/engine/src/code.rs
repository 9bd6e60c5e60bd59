//! Item codes as text: `12-4-9` is code 12 on the first level, 4 on the second, 9 on the third.

/// Reads a code and appends its components. Returns `false`, and appends nothing, unless the text has
/// one component per level, each a decimal number without leading zeros that is below its level's
/// size.
pub fn read_code(text: &str, level_sizes: &[usize], code: &mut Vec<u32>) -> bool {
    let before = code.len();
    let mut components = text.split('-');
    for &size in level_sizes {
        match components.next().and_then(read_component) {
            Some(component) if (component as usize) < size => code.push(component),
            _ => {
                code.truncate(before);
                return false;
            }
        }
    }
    let is_complete = components.next().is_none();
    if !is_complete {
        code.truncate(before);
    }
    is_complete
}

fn read_component(text: &str) -> Option<u32> {
    let is_canonical =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_one_spelling() {
        let mut code = vec![7];
        assert!(read_code("12-4-0", &[16, 8, 4], &mut code));
        assert_eq!(code, [7, 12, 4, 0]);
        for bad in [
            "",
            "12",
            "12-4",
            "12-4-9",
            "12-4-0-0",
            "12-4-",
            "-12-4",
            "012-4-0",
            "+2-4-0",
            "16-4-0",
            "12-4-00",
            " 12-4-0",
            "１2-4-0",
            "99999999999-4-0",
        ] {
            assert!(!read_code(bad, &[16, 8, 4], &mut code), "{bad}");
            assert_eq!(code, [7, 12, 4, 0], "{bad}");
        }
    }
}
