//! The demonstration suite: invented choices of invented people, with a known structure.
//!
//! Forty people order lunch every day. Each has a lasting taste and follows it three times in four;
//! otherwise the dish is random. An item shows the dishes of a person on eight days, and asks for
//! the next one. A model that uses the past is far better than chance (1 in 6), and no model can
//! always be right. The ten items of a person are a cluster, and results are also shown by age group.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

/// The suite's id on the platform.
pub const SUITE_ID: &str = "suite:lunch";

/// Each person's age group follows from the person's number: the first ones are the youngest.
const AGE_GROUPS: [(u64, &str); 3] = [(14, "18-34"), (27, "35-54"), (PEOPLE, "55+")];

const DISHES: [&str; 6] = ["curry", "dumplings", "paella", "ramen", "salad", "tacos"];
const PEOPLE: u64 = 40;
const DAYS: u64 = 10;
const PAST: usize = 8;

/// SplitMix64: a public-domain generator by Sebastiano Vigna, good enough for invented lunches.
pub struct Random(u64);

impl Random {
    /// Creates a generator whose numbers follow from `seed`.
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

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// Returns a random dish of a person with these two favourites.
    fn dish(&mut self, favourites: [usize; 2]) -> &'static str {
        match self.below(20) {
            0..10 => DISHES[favourites[0]],
            10..15 => DISHES[favourites[1]],
            _ => DISHES[self.below(6)],
        }
    }
}

/// Writes the suite's folder, with the same contents each time.
///
/// # Errors
/// If the folder cannot be written.
pub fn write(folder: &Path) -> std::io::Result<()> {
    let mut random = Random(2026);
    let mut items = String::new();
    let mut answers = String::new();
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
            // Writing to a String cannot fail.
            let age = AGE_GROUPS.iter().find(|(end, _)| person < *end);
            let groups = json!({"person": format!("person-{person:02}"), "age_group": age.map(|(_, name)| name)});
            let _ = writeln!(
                items,
                "{}",
                json!({"item_id": item_id, "input": input, "groups": groups})
            );
            let _ = writeln!(answers, "{answer}");
        }
    }
    let head = format!(
        "suite_id = \"{SUITE_ID}\"\nversion = \"1\"\nmetric = \"accuracy\"\ncluster = \"person\"\nslices = [\"age_group\"]\n\
         description = \"What forty made people have for lunch, as next-choice prediction. A prediction is the ranked list of the dishes.\"\n\
         \n[sequence]\nevents = \"past\"\noptions = \"options\"\n"
    );
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("suite.toml"), head)?;
    std::fs::write(folder.join("items.ndjson"), items)?;
    std::fs::write(folder.join("answers.ndjson"), answers)
}

/// Ranks the options by their frequency in the past: a modest model of a person.
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

/// Returns the prediction for an item by [`by_habit`].
pub fn prediction(item: &Value) -> Value {
    json!({"item_id": item["item_id"], "prediction": by_habit(&item["input"])})
}

/// Returns the body of a submission for these items, predicted by [`by_habit`].
pub fn submission(items: &[Value]) -> Value {
    json!({"suite_id": SUITE_ID, "predictions": items.iter().map(prediction).collect::<Vec<_>>()})
}

/// Returns the options in the order of the item, as a baseline without a model.
pub fn by_menu(input: &Value) -> Vec<String> {
    by_habit(&json!({"options": input["options"]}))
}
