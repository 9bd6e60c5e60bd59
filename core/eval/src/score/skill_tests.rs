//! Skills of scored predictions.

use serde_json::{Value, json};

use super::*;
use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::metric::{Clip, Metric};
use crate::skill::SkillBaseline;
use crate::suite::answers::Answer;

/// A suite with a skill, and a submission.
struct Case {
    metric: Metric,
    clip: Option<Clip>,
    baseline: SkillBaseline,
    clusters: Vec<u32>,
    groups: Vec<u32>,
    answers: Vec<Value>,
    /// `null` for an item without a prediction.
    predictions: Vec<Value>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let values = |field: &str| case[field].as_array().cloned().unwrap_or_default();
        let labels = |field: &str| -> Vec<u32> {
            let labels = values(field).into_iter();
            labels.map(|label| label.as_u64().unwrap() as u32).collect()
        };
        let clip = case["clip"].as_array();
        Self {
            metric: case["metric"].as_str().unwrap().parse().unwrap(),
            clip: clip.and_then(|ends| Clip::new(ends[0].as_f64()?, ends[1].as_f64()?)),
            baseline: case["baseline"].as_str().unwrap().parse().unwrap(),
            clusters: labels("clusters"),
            groups: labels("groups"),
            answers: values("answers"),
            predictions: values("predictions"),
        }
    }

    fn table(&self, is_in: impl Fn(usize) -> bool) -> AnswerTable {
        let mut builder = Builder::new(self.metric, self.answers.len()).clip(self.clip);
        let chosen = || (0..self.answers.len()).filter(|item| is_in(*item));
        for item in chosen() {
            let answer = self.answers[item].to_string();
            let answer = Answer::parse(&answer, &self.metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            if let Some(cluster) = self.clusters.get(item) {
                builder.put_into_cluster(*cluster);
            }
        }
        let mut table = builder.finish().unwrap();
        let has_groups = !self.groups.is_empty();
        let labels: Vec<u32> = chosen()
            .filter(|_| has_groups)
            .map(|item| self.groups[item])
            .collect();
        let groups = SkillGroups {
            field: has_groups.then_some("dataset"),
            labels: &labels,
            values: &[],
        };
        let scores = score_skill_baseline(&table, self.metric, self.baseline, groups);
        table.set_skill(scores.unwrap());
        table
    }

    /// Scores the predictions in the order of these items.
    fn score(
        &self,
        (open, sealed): (&AnswerTable, Option<&AnswerTable>),
        order: impl Iterator<Item = usize>,
    ) -> Score {
        let shown = order.filter(|item| !self.predictions[*item].is_null());
        let predictions: Vec<Value> = shown
            .map(
                |item| json!({"item_id": format!("i{item}"), "prediction": self.predictions[item]}),
            )
            .collect();
        let bytes = json!(predictions).to_string();
        score(
            open,
            sealed,
            self.metric,
            bytes.as_bytes(),
            &Progress::default(),
        )
        .unwrap()
    }

    fn figures(&self) -> Figures {
        let table = self.table(|_| true);
        self.score((&table, None), 0..self.answers.len()).figures
    }
}

fn cases() -> Vec<Value> {
    let vectors = include_str!("../../../../tests/vectors/skill.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    vectors["suites"].as_array().unwrap().clone()
}

/// Returns the relative difference; of small figures, the absolute one.
fn far(found: f64, expected: &Value) -> f64 {
    let expected = expected.as_f64().unwrap();
    (found - expected).abs() / expected.abs().max(1.0)
}

#[test]
fn skills_agree_with_statsmodels() {
    let cases = cases();
    assert_eq!(cases.len(), 150);
    let [mut worst_value, mut worst_stderr, mut worst_ends] = [0.0_f64; 3];
    let mut methods = std::collections::BTreeSet::new();
    for expected in &cases {
        let name = &expected["name"];
        let case = Case::of(expected);
        let skill = case.figures().skill.unwrap();
        assert_eq!(skill.baseline, case.baseline);
        assert_eq!(skill.within.is_some(), !case.groups.is_empty(), "{name}");
        let expected = &expected["skill"];
        let value = far(skill.value, &expected["value"]);
        assert_eq!(json!(skill.ci_method), expected["method"], "{name}");
        assert_eq!(skill.stderr.is_none(), expected["stderr"].is_null());
        assert!(value <= 1e-12, "{name}: {value:e}");
        worst_value = worst_value.max(value);
        if let (Some(stderr), Some([low, high])) = (skill.stderr, skill.ci95) {
            let stderr = far(stderr, &expected["stderr"]);
            let ends = far(low, &expected["ci95"][0]).max(far(high, &expected["ci95"][1]));
            assert!(
                stderr <= 1e-12 && ends <= 1e-11,
                "{name}: {stderr:e} {ends:e}"
            );
            worst_stderr = worst_stderr.max(stderr);
            worst_ends = worst_ends.max(ends);
        }
        methods.insert(skill.ci_method);
    }
    assert_eq!(methods.len(), 3);
    println!("value {worst_value:e}, stderr {worst_stderr:e}, ends {worst_ends:e}");
}

#[test]
fn order_of_predictions_does_not_change_skill() {
    for expected in &cases()[..30] {
        let case = Case::of(expected);
        let table = case.table(|_| true);
        let backwards = case.score((&table, None), (0..case.answers.len()).rev());
        assert_eq!(backwards.figures, case.figures(), "{}", expected["name"]);
    }
}

#[test]
fn baseline_itself_has_no_skill() {
    for expected in &cases()[..20] {
        let case = Case::of(expected);
        let table = case.table(|_| true);
        let scores = expected["scores"].as_array().unwrap().iter();
        let scores = scores.map(|score| score.as_f64().unwrap());
        let skill = table.skill().unwrap().skill(scores, table.clusters());
        assert!(skill.value.abs() < 1e-12, "{}: {skill:?}", expected["name"]);
    }
}

#[test]
fn open_and_sealed_items_have_their_own_skill() {
    for expected in &cases()[..10] {
        let case = Case {
            groups: Vec::new(),
            ..Case::of(expected)
        };
        let n = case.answers.len();
        let (open, sealed) = (
            case.table(|item| item < n / 2),
            case.table(|item| item >= n / 2),
        );
        let both = case.score((&open, Some(&sealed)), 0..n);
        let alone = case.score((&open, None), 0..n);
        let sealed_alone = case.score((&sealed, None), 0..n);
        assert_eq!(both.figures.skill, alone.figures.skill);
        let found = both.sealed.unwrap().figures.skill;
        assert_eq!(found, sealed_alone.figures.skill);
        assert!(found.is_some());
    }
}

#[test]
fn skill_is_disclosed_as_other_figures() {
    let case = Case::of(&cases()[1]);
    let figures = case.figures();
    let skill = figures.skill.clone().unwrap();
    let policy = |text: &str| text.parse::<DisclosurePolicy>().unwrap();
    for text in ["exact", "sealed(0.5)"] {
        let shown = policy(text).disclose(figures.clone(), None).unwrap();
        assert_eq!(shown.skill, Some(skill.clone()));
    }
    let shown = policy("rounded(2)")
        .disclose(figures.clone(), None)
        .unwrap();
    let rounded = shown.skill.unwrap();
    assert_eq!(rounded.value, 0.73);
    assert_eq!(rounded.stderr, Some(0.02));
    assert_eq!(rounded.ci95, Some([0.69, 0.77]));
    assert_eq!(rounded.ci_method, skill.ci_method);
    let ladder = Ladder {
        start: 0.9,
        step: -0.1,
        levels: 8,
    };
    let mut level = 0;
    let shown = policy("ladder(0.1)").disclose(figures, Some((ladder, &mut level)));
    assert_eq!(shown.unwrap().skill, None);
}

#[test]
fn skill_is_written_with_all_fields() {
    let skill = Case::of(&cases()[11]).figures().skill.unwrap();
    let json = serde_json::to_value(&skill).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 6);
    assert_eq!(json["within"], json!(skill.within));
    assert_eq!(json["baseline"], "marginal");
    assert_eq!(json["ci_method"], "cluster_t");
}

#[test]
fn undefined_skills_are_rejected() {
    let table = |metric: Metric, answers: &[&str]| {
        let mut builder = Builder::new(metric, answers.len());
        for (item, answer) in answers.iter().enumerate() {
            let answer = Answer::parse(answer, &metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
        }
        builder.finish().unwrap()
    };
    let error = |metric: &str, answers: &[&str], baseline, labels: &[u32]| {
        let metric = metric.parse().unwrap();
        let values = ["a", "b"].map(str::to_owned);
        let groups = SkillGroups {
            field: (!labels.is_empty()).then_some("dataset"),
            labels,
            values: &values,
        };
        let found = score_skill_baseline(&table(metric, answers), metric, baseline, groups);
        found.err().unwrap_or_default()
    };
    let (uniform, marginal) = (SkillBaseline::Uniform, SkillBaseline::Marginal);
    let labels = ["\"x\"", "\"y\"", "\"x\"", "\"x\""];
    assert_eq!(error("accuracy", &labels, marginal, &[]), "");
    let found = error("accuracy", &labels, marginal, &[0, 0, 1, 1]);
    assert!(
        found.starts_with(
            "the marginal baseline has the best score for all items with one value \"b\" of dataset"
        ),
        "{found}"
    );
    let found = error("brier", &["\"x\"", "\"x\""], uniform, &[]);
    assert!(
        found.starts_with("the uniform baseline has the best score for all items, so"),
        "{found}"
    );
    let found = error("brier", &labels, uniform, &[0, 1]);
    assert_eq!(found, "some items have no group of the field within");
    let found = error("mae", &["1", "2"], uniform, &[]);
    assert!(
        found.contains("no uniform prediction of a number"),
        "{found}"
    );
    let found = error("rmse", &["1", "2"], marginal, &[]);
    assert!(found.contains("is no mean over the scores"), "{found}");
}
