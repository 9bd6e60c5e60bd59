//! Names that strangers see: for organizations, board entries, and programs on a device login's
//! page.
//!
//! A name must show what it is. It has no invisible characters, and two names on one board must not
//! look the same.

use assay_eval::FieldError;
use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointSetData;
use icu_properties::props::{
    DefaultIgnorableCodePoint, EnumeratedProperty as _, GeneralCategory, NoncharacterCodePoint,
};
use unicode_security::skeleton;

use crate::model::validation::{TEXT_MAX, text_up_to};

/// Validates a name that strangers see. Returns it in Unicode's normalization form C, with each
/// white-space run as one space, and none at its ends.
///
/// # Errors
/// A field error if it has more than `max` characters, has no letter or digit, or contains control
/// characters, characters that are invisible or change the text direction, or characters without
/// their own meaning: private ones and noncharacters.
pub fn public_name(field: &str, value: &str, max: usize) -> Result<String, FieldError> {
    let text = text_up_to(field, value, max)?;
    let normalized = ComposingNormalizerBorrowed::new_nfc().normalize(&text);
    if let Some(hidden) = normalized.chars().find(|letter| is_hidden(*letter)) {
        let message = format!(
            "must not contain U+{:04X}: it is invisible, or changes how the text around it looks",
            u32::from(hidden)
        );
        return Err(FieldError::new(field, "format", message));
    }
    if !normalized.chars().any(char::is_alphanumeric) {
        let message = "must contain a letter or a digit";
        return Err(FieldError::new(field, "format", message));
    }
    let words: Vec<&str> = normalized.split_whitespace().collect();
    Ok(words.join(" "))
}

/// Validates a [`public_name`] of at most 200 characters without links. The emails of invites show
/// their organization's name, and a device login's page shows the program's name.
///
/// # Errors
/// A field error, also if email programs would show a part of the name as a link.
pub fn name_without_link(field: &str, value: &str) -> Result<String, FieldError> {
    let name = public_name(field, value, TEXT_MAX)?;
    match link(&name) {
        Some(link) => {
            let message = format!("must not contain a link, as which email programs show {link:?}");
            Err(FieldError::new(field, "format", message))
        }
        None => Ok(name),
    }
}

/// Returns `true` for characters that people do not see, or that change how others look.
fn is_hidden(letter: char) -> bool {
    let blank_braille = '\u{2800}';
    let is_annotation = ('\u{fff9}'..='\u{fffb}').contains(&letter);
    letter == blank_braille
        || is_annotation
        || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(letter)
        || CodePointSetData::new::<NoncharacterCodePoint>().contains(letter)
        || GeneralCategory::for_char(letter) == GeneralCategory::PrivateUse
}

/// A name's keys. Two names that people may take for each other have a key in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameKeys {
    /// The key by which names that differ only in upper and lower case are the same.
    pub folded: String,
    /// The key by which names that look the same in the case in which they are written are the same.
    pub shown: String,
}

impl NameKeys {
    /// Computes a name's keys: its compatibility form (NFKC), whose skeleton follows Unicode
    /// Technical Standard 39, section 4. In addition, `i`, `I`, `l` and `1` are one letter: the
    /// standard takes `I` for `l`, and upper case makes `i` an `I`.
    pub fn of(name: &str) -> Self {
        let compatible = ComposingNormalizerBorrowed::new_nfkc().normalize(name);
        Self {
            folded: look(&compatible.to_lowercase()),
            shown: look(&compatible),
        }
    }
}

/// Returns a text's skeleton in lower case.
fn look(text: &str) -> String {
    let lower = skeleton(text).collect::<String>().to_lowercase();
    let again = skeleton(&lower).collect::<String>();
    again.replace('i', "l")
}

/// Returns `true` if email programs would show a part of the text as a link.
pub fn has_link(text: &str) -> bool {
    link(text).is_some()
}

/// Returns the text part that email programs show as a link: an address with a scheme, `www.`,
/// a host with a path or a port, or a host below a known top-level domain.
fn link(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| is_link(word))
}

fn is_link(word: &str) -> bool {
    let word = word.to_lowercase();
    let is_host = |host: &str| {
        let host = host.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        let last = host
            .rsplit_once('.')
            .map(|(before, last)| (before.ends_with(char::is_alphanumeric), last));
        last.is_some_and(|(is_name, last)| {
            is_name && last.chars().count() >= 2 && last.chars().all(char::is_alphabetic)
        })
    };
    let below_known_domain = |host: &str| {
        let host = host.trim_matches(|letter: char| !letter.is_alphanumeric());
        host.contains('.') && psl::suffix(host.as_bytes()).is_some_and(|suffix| suffix.is_known())
    };
    ["://", "mailto:"].iter().any(|mark| word.contains(mark))
        || word
            .split(|letter: char| !letter.is_alphanumeric() && letter != '.')
            .any(|part| part.starts_with("www."))
        || word
            .split_once(['/', ':', '?', '#'])
            .is_some_and(|(host, _)| is_host(host))
        || word
            .split(|letter: char| !letter.is_alphanumeric() && letter != '.' && letter != '-')
            .any(below_known_domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name pairs that people take for each other.
    const LOOK_ALIKE: &str = "
        Acme Lab|acme lab
        Acme Lab|ACME LAB
        Acme Lab|Acme  Lab
        Acme Lab|Acme\u{a0}Lab
        Acme Lab|Acme\u{3000}Lab
        Acme Lab|Acme\u{2009}Lab
        Acme Lab|\u{410}cme Lab
        Acme Lab|A\u{441}me Lab
        Acme Lab|Acm\u{435} Lab
        Acme Lab|Acme L\u{430}b
        Acme Lab|Ａｃｍｅ Ｌａｂ
        Acme Lab|𝐀𝐜𝐦𝐞 𝐋𝐚𝐛
        Acme Lab|𝒜cme Lab
        Acme Lab|Ꭺcme Lab
        Acme Lab|Αcme Lab
        Bank|Вank
        Bank|Βank
        Bank|ΒΑΝΚ
        Bank|ВАNК
        Tokyo|Тokyo
        Tokyo|Τοkyo
        Kyoto|Куоtо
        Kyoto|Κyoto
        Hope|Норе
        Hope|Ηope
        Mind|Мind
        Mind|Μind
        model-1|model\u{2011}1
        model-1|model\u{2010}1
        model-1|model‒1
        model-1|model–1
        model-1|model−1
        model-1|model-l
        model-1|model-I
        model-1|model-i
        Google|GoogIe
        Google|Goog1e
        Google|G00gle
        Google|Gооgle
        Google|Ԍoogle
        Alpha|AIpha
        Alpha|A1pha
        Alpha|A|pha
        Alpha|Alphа
        Alpha|Αlpha
        AI lab|Al lab
        AI lab|ai lab
        AI lab|A1 lab
        Oslo|0slo
        Oslo|Оslo
        Oslo|Οslo
        modern|modem
        Scope|Ѕcope
        Scope|Ѕсоре
        peace|реасе
        Xerxes|Хerxes
        ﬁnance|finance
        Café|Cafe\u{301}
        Ĳssel|IJssel
        №1|No1
        don't|don’t
        don't|donʼt
        A/B|A⁄B
        Волга|ВОЛГА
        a.b|a․b
        ℌope|Hope
        Ⅳ lab|IV lab
    ";

    /// Honest names, which people take for no other one.
    const HONEST: &str = "
        Acme Lab|Acme Labs|Acme Lab 2|Ada Lovelace Institute|Max-Planck-Institut für Psychologie
        Université de Montréal|Facultad de Ciencias Económicas|Kraków AI|São Paulo Lab|Đà Nẵng AI
        Волга|Институт психологии|Лаборатория поведения|Київ|Български институт
        Εργαστήριο|Πανεπιστήμιο Αθηνών|東京大学|行動科学研究所|こころ研究室|ココロ
        北京大学|清华大学|서울대학교|행동과학 연구소|जयपुर प्रयोगशाला|दिल्ली विश्वविद्यालय
        ภาษาไทย|จุฬาลงกรณ์|جامعة القاهرة|مختبر السلوك|האוניברסיטה העברית|מעבדה
        Հայաստան|თბილისი|বাংলা গবেষণা|தமிழ் ஆய்வு|ኢትዮጵያ|gpt-4o mini|v1.2/v1.3|R&D #7
    ";

    /// Returns `true` if the names have a key in common.
    fn are_alike(one: &str, other: &str) -> bool {
        let [one, other] = [one, other].map(NameKeys::of);
        [&one.folded, &one.shown]
            .iter()
            .any(|key| [&other.folded, &other.shown].contains(key))
    }

    fn names(list: &str) -> impl Iterator<Item = &str> {
        list.lines()
            .flat_map(|line| line.trim().split('|'))
            .filter(|name| !name.is_empty())
    }

    #[test]
    fn look_alike_names_share_a_key() {
        let pairs: Vec<_> = LOOK_ALIKE
            .lines()
            .filter_map(|line| line.trim().split_once('|'))
            .collect();
        assert!(pairs.len() >= 60, "{}", pairs.len());
        for (one, other) in pairs {
            let names = [one, other].map(|name| public_name("name", name, TEXT_MAX).unwrap());
            assert!(are_alike(&names[0], &names[1]), "{one} {other}");
        }
    }

    #[test]
    fn honest_names_in_many_scripts_are_distinct() {
        let all: Vec<_> = names(HONEST).collect();
        assert!(all.len() >= 40, "{}", all.len());
        for (at, one) in all.iter().enumerate() {
            let name = public_name("name", one, TEXT_MAX);
            assert_eq!(name.as_deref(), Ok(*one), "{one}");
            for other in &all[..at] {
                assert!(!are_alike(one, other), "{one} {other}");
            }
        }
    }

    #[test]
    fn hidden_characters_are_refused_and_named() {
        for hidden in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3164}',
            '\u{e000}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{ffff}',
            '\u{1d173}',
            '\u{e0041}',
            '\u{e0100}',
        ] {
            let error = public_name("name", &format!("a{hidden}b"), TEXT_MAX).unwrap_err();
            let code = format!("U+{:04X}", u32::from(hidden));
            assert!(error.message.contains(&code), "{code}: {}", error.message);
        }
        for invisible in ["\u{2003}", "...", "\u{301}", "-", "\u{3000}\u{2028}"] {
            assert!(
                public_name("name", invisible, TEXT_MAX).is_err(),
                "{invisible:?}"
            );
        }
    }

    #[test]
    fn names_are_normalized_and_bounded() {
        for (given, name) in [(" Cafe\u{301} ", "Café"), ("a \u{a0}\u{3000} b", "a b")] {
            assert_eq!(public_name("name", given, TEXT_MAX).as_deref(), Ok(name));
        }
        assert!(public_name("name", &"é".repeat(100), 100).is_ok());
        for (value, reason) in [
            ("", "required"),
            ("   ", "required"),
            ("a\0b", "format"),
            ("\ta", "format"),
            ("a\n", "format"),
            (&"x".repeat(101) as &str, "range"),
            (&" ".repeat(101), "range"),
        ] {
            let error = public_name("name", value, 100).unwrap_err();
            assert_eq!(error.reason, reason, "{value:?}");
        }
    }

    #[test]
    fn organization_name_has_no_link() {
        for name in [
            "Acme",
            "Acme Inc.",
            "Dr./Mr. Smith",
            "Q&A: v1.2/v1.3",
            "A.I./ML",
            "R&D #1",
            "www",
            "Note: 5/6",
            "Node.js",
            "G.m.b.H",
            "e.V.",
            "St.Gallen",
        ] {
            assert_eq!(
                name_without_link("name", name).as_deref(),
                Ok(name),
                "{name}"
            );
        }
        for name in [
            "ALERT: confirm at https://evil.example/login",
            "HTTPS://EVIL.example",
            "www.evil.example",
            "(www.evil.example)",
            "confirm at evil.example/login now",
            "confirm at (evil.example/login)",
            "evil.example:8080",
            "evil.example?x",
            "mailto:eve@evil.example",
            "sign in at evil.com",
            "(evil.co.uk)",
            "eve@evil.org",
            "Evil.COM.",
        ] {
            let error = name_without_link("name", name).unwrap_err();
            assert_eq!(error.reason, "format", "{name}");
        }
    }
}
