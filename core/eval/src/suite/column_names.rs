//! The words in the names of columns.

/// The words of a name that suggest data about a person.
const PERSONAL: [&str; 13] = [
    "address",
    "email",
    "firstname",
    "fullname",
    "ip",
    "lastname",
    "mail",
    "mobile",
    "name",
    "phone",
    "surname",
    "telephone",
    "username",
];

/// Returns `true` if a column's name suggests that it identifies persons, such as `email` or `clientIP`.
pub fn looks_personal(name: &str) -> bool {
    has_word(name, &PERSONAL)
}

/// Returns `true` if a name contains one of these words in lower case. Words end before a capital letter,
/// and at characters that are neither letters nor digits.
pub(super) fn has_word(name: &str, wanted: &[&str]) -> bool {
    let mut words = vec![String::new()];
    let mut characters = name.chars().peekable();
    let mut last_is_upper = true;
    while let Some(character) = characters.next() {
        let is_upper = character.is_uppercase();
        let next_is_lower = characters.peek().is_some_and(|next| next.is_lowercase());
        // `userID` is `user` and `ID`; `XMLId` is `XML` and `Id`.
        if !character.is_alphanumeric() || (is_upper && (!last_is_upper || next_is_lower)) {
            words.push(String::new());
        }
        last_is_upper = is_upper;
        if let Some(word) = words.last_mut()
            && character.is_alphanumeric()
        {
            word.extend(character.to_lowercase());
        }
    }
    words.iter().any(|word| wanted.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_columns_have_telling_words() {
        for name in [
            "email",
            "E-Mail",
            "phone_number",
            "name",
            "firstName",
            "home address",
            "ip",
            "clientIP",
            "IP_address",
            "userName",
        ] {
            assert!(looks_personal(name), "{name}");
        }
        for name in ["trip", "named", "shipment", "age", "", "zip", "names"] {
            assert!(!looks_personal(name), "{name}");
        }
    }
}
