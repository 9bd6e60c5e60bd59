//! The demonstration suite: made choices of made people, with a structure that is known.
//!
//! Forty people order lunch day after day. Each has a lasting taste, and follows it three times in four; otherwise the
//! dish is left to chance. An item shows what a person had on eight days before, and asks what they had on the next. So
//! somebody who looks at the past does far better than chance (1 in 6), and nobody can be right every time.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

/// The suite's id.
pub const SUITE_ID: &str = "suite:lunch";

const DISHES: [&str; 6] = ["curry", "dumplings", "paella", "ramen", "salad", "tacos"];
const PEOPLE: u64 = 40;
const DAYS: u64 = 10;
const PAST: usize = 8;

/// SplitMix64: a public-domain generator by Sebastiano Vigna, good enough for made lunches.
pub struct Random(u64);

impl Random {
    /// Numbers that follow from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// What a person with these two favourites has.
    fn dish(&mut self, favourites: [usize; 2]) -> &'static str {
        match self.below(20) {
            0..10 => DISHES[favourites[0]],
            10..15 => DISHES[favourites[1]],
            _ => DISHES[self.below(6)],
        }
    }
}

/// Writes the suite's folder, the same each time.
///
/// # Errors
/// When the folder cannot be written.
pub fn write(folder: &Path) -> std::io::Result<()> {
    let mut random = Random(2026);
    let (mut items, mut answers) = (String::new(), String::new());
    for person in 0..PEOPLE {
        let first = random.below(6);
        let favourites = [first, (first + 1 + random.below(5)) % 6];
        for day in 0..DAYS {
            let past: Vec<_> = (0..PAST).map(|_| random.dish(favourites)).collect();
            let item_id = format!("person-{person:02}/day-{day}");
            let prompt = format!(
                "Person {person} had {} on the days before. What is for lunch today?",
                past.join(", ")
            );
            let input = json!({"prompt": prompt, "person": format!("person-{person:02}"), "past": past, "options": DISHES});
            let answer = json!({"item_id": item_id, "answer": random.dish(favourites)});
            // A String takes everything.
            let _ = writeln!(items, "{}", json!({"item_id": item_id, "input": input}));
            let _ = writeln!(answers, "{answer}");
        }
    }
    let head = format!(
        "suite_id = \"{SUITE_ID}\"\nversion = \"1\"\nmetric = \"accuracy\"\n\
         description = \"What forty made people have for lunch, as next-choice prediction. A prediction is the ranked list of the dishes.\"\n"
    );
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("suite.toml"), head)?;
    std::fs::write(folder.join("items.ndjson"), items)?;
    std::fs::write(folder.join("answers.ndjson"), answers)
}

/// A modest model of a person: what they had most often comes first.
pub fn by_habit(input: &Value) -> Vec<String> {
    let texts = |name: &str| -> Vec<String> {
        let values = input[name]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        values
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let past = texts("past");
    let mut options = texts("options");
    options.sort_by_key(|dish| std::cmp::Reverse(past.iter().filter(|had| *had == dish).count()));
    options
}

/// The prediction of an item by habit.
pub fn prediction(item: &Value) -> Value {
    json!({"item_id": item["item_id"], "prediction": by_habit(&item["input"])})
}

/// A submission for these items, by habit.
pub fn submission(items: &[Value]) -> Value {
    json!({"suite_id": SUITE_ID, "predictions": items.iter().map(prediction).collect::<Vec<_>>()})
}

/// No model at all: the dishes as they stand on the menu.
pub fn by_menu(input: &Value) -> Vec<String> {
    by_habit(&json!({"options": input["options"]}))
}
