//! The playlist suite: the songs of invented listeners, with a known structure. A small model, trained
//! with other listeners, is published with it: `tests/models` has the model, its figures, and the same
//! listeners in Python.
//!
//! A song has a genre, a mood, a popularity, and four followers, one for each mood. A listener has a
//! favourite mood. Of 100 songs that a listener plays, 15 are drawn by popularity. The others follow
//! the song before, and 65 in 100 have the favourite mood. The last song shows which four songs may
//! follow. Only the songs before it show which one this listener prefers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::demo_suite::Random;

/// The suite's id on the platform.
pub const SUITE_ID: &str = "suite:playlist";

const LISTENERS: u64 = 600;
const SONGS: usize = 500;
const GENRES: u64 = 20;
const MOODS: usize = 4;
const WORLD_SEED: u64 = 2026;
const FIRST_LISTENER_SEED: u64 = 1_000_000;
/// The length of the baselines' rankings, which is that of the suite's metric.
const RANKED: usize = 10;

/// The songs and their followers.
struct World {
    /// The summed popularity of all songs up to each.
    popularity: Vec<u64>,
    /// Each song's followers, by mood.
    followers: Vec<[usize; MOODS]>,
}

impl World {
    fn new() -> Self {
        let mut random = Random::new(WORLD_SEED);
        // Shuffled, so that a song's number does not show its popularity.
        let mut charts: Vec<u64> = (0..).take(SONGS).collect();
        for last in (1..SONGS).rev() {
            charts.swap(last, random.below(last as u64 + 1));
        }
        let mut total = 0;
        let sums = charts.into_iter().map(|place| {
            total += 100_000 / (place + 10);
            total
        });
        let popularity = sums.collect();
        let traits: Vec<_> = (0..SONGS)
            .map(|_| (random.below(GENRES), random.below(MOODS as u64)))
            .collect();
        let mut follower = |song, mood| draw_follower(&mut random, &traits, song, mood);
        let followers = (0..SONGS)
            .map(|song| std::array::from_fn(|mood| follower(song, mood)))
            .collect();
        Self {
            popularity,
            followers,
        }
    }

    /// Draws a song by popularity.
    fn popular(&self, random: &mut Random) -> usize {
        let total = self.popularity.last().copied().unwrap_or(1);
        let drawn = random.below(total) as u64;
        self.popularity.partition_point(|sum| *sum <= drawn)
    }

    /// Returns the 21 to 51 songs that a listener played, oldest first.
    fn listener(&self, seed: u64) -> Vec<usize> {
        let mut random = Random::new(seed);
        let favourite = random.below(MOODS as u64);
        let number = 21 + random.below(31);
        let mut song = self.popular(&mut random);
        let mut songs = vec![song];
        while songs.len() < number {
            song = if random.below(100) < 15 {
                self.popular(&mut random)
            } else if random.below(100) < 65 {
                self.followers[song][favourite]
            } else {
                let other = favourite + 1 + random.below(MOODS as u64 - 1);
                self.followers[song][other % MOODS]
            };
            songs.push(song);
        }
        songs
    }
}

/// Draws a follower of a mood; three in four have the song's genre if there is one.
fn draw_follower(
    random: &mut Random,
    traits: &[(usize, usize)],
    song: usize,
    mood: usize,
) -> usize {
    let is_related = random.below(4) < 3;
    let start = random.below(SONGS as u64);
    let candidates = || {
        (0..SONGS)
            .map(|step| (start + step) % SONGS)
            .filter(|one| *one != song && traits[*one].1 == mood)
    };
    let mut related = candidates().filter(|one| is_related && traits[*one].0 == traits[song].0);
    related
        .next()
        .or_else(|| candidates().next())
        .unwrap_or(song)
}

fn song_id(song: usize) -> String {
    format!("song-{song:03}")
}

/// Returns the contents of `items.ndjson` and `answers.ndjson`.
fn contents() -> (String, String) {
    let world = World::new();
    let (mut items, mut answers) = (String::new(), String::new());
    for listener in 0..LISTENERS {
        let mut past: Vec<_> = world
            .listener(FIRST_LISTENER_SEED + listener)
            .into_iter()
            .map(song_id)
            .collect();
        let answer = past.pop();
        let prompt = format!(
            "A listener played {}. Which song comes next?",
            past.join(", ")
        );
        let item_id = format!("listener-{listener:03}");
        // Writing to a String cannot fail. The keys are sorted, so their order is that of the text in
        // every configuration of serde_json.
        let _ = writeln!(
            items,
            "{}",
            json!({"input": {"past": past, "prompt": prompt}, "item_id": item_id})
        );
        let _ = writeln!(answers, "{}", json!({"answer": answer, "item_id": item_id}));
    }
    (items, answers)
}

/// Writes the suite's folder, with the same contents each time.
///
/// # Errors
/// If the folder cannot be written.
pub fn write(folder: &Path) -> std::io::Result<()> {
    let (items, answers) = contents();
    let head = format!(
        "suite_id = \"{SUITE_ID}\"\nversion = \"1\"\nmetric = \"mrr@{RANKED}\"\n\
         description = \"What {LISTENERS} invented listeners play next, of {SONGS} songs. A prediction is the ranked list of the songs, best first.\"\n\n\
         [sequence]\nevents = \"past\"\n"
    );
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("suite.toml"), head)?;
    std::fs::write(folder.join("items.ndjson"), items)?;
    std::fs::write(folder.join("answers.ndjson"), answers)
}

/// Counts over the suite's public items: plays of each song, and what follows it.
struct Counts<'a> {
    plays: HashMap<&'a str, u64>,
    followers: HashMap<&'a str, HashMap<&'a str, u64>>,
    /// All songs, the most played first.
    charts: Vec<&'a str>,
}

impl<'a> Counts<'a> {
    fn of(items: &'a [Value]) -> Self {
        let mut plays: HashMap<&str, u64> = HashMap::new();
        let mut followers: HashMap<&str, HashMap<&str, u64>> = HashMap::new();
        for past in items.iter().map(past) {
            for song in &past {
                *plays.entry(song).or_default() += 1;
            }
            for (song, following) in past.iter().zip(past.iter().skip(1)) {
                *followers
                    .entry(song)
                    .or_default()
                    .entry(following)
                    .or_default() += 1;
            }
        }
        let mut charts: Vec<_> = plays.keys().copied().collect();
        charts.sort_by_key(|song| (Reverse(plays[song]), *song));
        Self {
            plays,
            followers,
            charts,
        }
    }

    /// Ranks the followers of the last song by their number, then the other songs by popularity.
    fn by_last_song(&self, past: &[&str]) -> Vec<&'a str> {
        let none = HashMap::new();
        let counted = past.last().and_then(|last| self.followers.get(last));
        let counted = counted.unwrap_or(&none);
        let mut ranked: Vec<_> = counted.keys().copied().collect();
        ranked.sort_by_key(|song| (Reverse(counted[song]), Reverse(self.plays[song]), *song));
        let others = self
            .charts
            .iter()
            .filter(|song| !counted.contains_key(*song));
        ranked.extend(others);
        ranked
    }
}

/// Returns the songs that the listener of an item played.
fn past(item: &Value) -> Vec<&str> {
    let songs = item["input"]["past"].as_array();
    songs
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn prediction(item: &Value, ranked: &[&str]) -> Value {
    let best = &ranked[..ranked.len().min(RANKED)];
    json!({"item_id": item["item_id"], "prediction": best})
}

/// Returns predictions for these items: the songs that are most often played in all.
pub fn by_popularity(items: &[Value]) -> Vec<Value> {
    let counts = Counts::of(items);
    items
        .iter()
        .map(|item| prediction(item, &counts.charts))
        .collect()
}

/// Returns predictions for these items: the songs that most often follow the listener's last song in
/// all, then the most popular songs.
pub fn by_last_song(items: &[Value]) -> Vec<Value> {
    let counts = Counts::of(items);
    items
        .iter()
        .map(|item| prediction(item, &counts.by_last_song(&past(item))))
        .collect()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// Computed by `tests/models/figures.py`.
    fn figures() -> Value {
        serde_json::from_str(include_str!("../models/figures.json")).unwrap()
    }

    fn sha256(text: &str) -> String {
        Sha256::digest(text)
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    fn lines(text: &str) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap();
        text.lines().map(parse).collect()
    }

    #[test]
    fn suite_files_equal_those_of_python() {
        let (items, answers) = contents();
        let figures = figures();
        assert_eq!(figures["items_sha256"], sha256(&items));
        assert_eq!(figures["answers_sha256"], sha256(&answers));
    }

    #[test]
    fn baselines_have_the_figures_of_python() {
        let (items, answers) = contents();
        let (items, answers) = (lines(&items), lines(&answers));
        for (name, predictions) in [
            ("popularity", by_popularity(&items)),
            ("last_song", by_last_song(&items)),
        ] {
            let reciprocal_rank = |(prediction, answer): (&Value, &Value)| {
                assert_eq!(prediction["item_id"], answer["item_id"]);
                let ranked = prediction["prediction"].as_array().unwrap();
                assert_eq!(ranked.len(), RANKED);
                let place = ranked.iter().position(|song| *song == answer["answer"]);
                place.map_or(0.0, |place| 1.0 / (place as f64 + 1.0))
            };
            let sum: f64 = predictions.iter().zip(&answers).map(reciprocal_rank).sum();
            let expected = figures()["suite"][name]["mrr@10"].as_f64().unwrap();
            let found = sum / items.len() as f64;
            assert!((found - expected).abs() < 1e-8, "{name}: {found}");
        }
    }
}
