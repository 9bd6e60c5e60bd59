//! The comparison between two jobs.

use askama::Template;
use assay_core::model::comparison::Comparison;
use assay_core::model::job::Job;
use assay_core::model::permissions::JobReader;
use assay_eval::compare::Verdict;
use axum::extract::State;

use crate::app::App;
use crate::dashboard::charts::interval;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, page_with};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Visitor};
use crate::generated::inputs;
use crate::ops::{comparisons, jobs};

#[derive(Template)]
#[template(path = "pages/compare.html")]
struct ComparePage {
    layout: Layout,
    entry: Entry,
    result: Option<Compared>,
}

/// Two jobs and their difference.
struct Compared {
    a: Job,
    b: Job,
    comparison: Comparison,
    chart: Option<String>,
}

impl Compared {
    /// Returns both jobs with their letters and values.
    fn sides(&self) -> [(char, &Job, f64); 2] {
        [
            ('A', &self.a, self.comparison.value_a),
            ('B', &self.b, self.comparison.value_b),
        ]
    }

    /// Returns which job is better, and how often a difference with this size occurs by chance.
    fn sentence(&self) -> String {
        let Comparison {
            ref metric,
            difference,
            p_value,
            lower_is_better,
            ..
        } = self.comparison;
        Verdict::new(lower_is_better, difference, p_value).sentence(metric)
    }
}

/// Shows the difference between two jobs: `a` and `b`, or the list's two `job` values.
pub async fn show(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    let selected: Vec<&str> = query.values("job").collect();
    let (a, b) = match selected.as_slice() {
        [] => (query.get("a"), query.get("b")),
        [a, b] => (*b, *a),
        others => {
            let entry = Entry {
                message: format!("Select two jobs. You have selected {}.", others.len()),
                ..Entry::default()
            };
            return render(&app, visitor, entry, None).await;
        }
    };
    let form = Form::default().with("a", a).with("b", b);
    if a.is_empty() && b.is_empty() {
        return render(&app, visitor, Entry::new(form), None).await;
    }
    let reader: JobReader = visitor.proof()?;
    let compared = async {
        let jobs = inputs::CreateComparison {
            job_a: a.to_owned(),
            job_b: Some(b.to_owned()),
            baseline: None,
        };
        let comparison = comparisons::create(&app, &reader, jobs).await?;
        let a = jobs::get(&app, &reader, a, inputs::GetJob::default()).await?;
        let b = jobs::get(&app, &reader, b, inputs::GetJob::default()).await?;
        Ok((comparison, a, b))
    };
    match compared.await {
        Ok((comparison, a, b)) => {
            let title = "Difference with its 95 % interval";
            let draw =
                |ci95| interval::draw("difference", title, comparison.difference, ci95, true);
            let chart = comparison.ci95.map(draw);
            let result = Compared {
                a,
                b,
                comparison,
                chart,
            };
            render(&app, visitor, Entry::new(form), Some(result)).await
        }
        Err(error) => {
            let entry = Entry::explained(&form, error)?;
            render(&app, visitor, entry, None).await
        }
    }
}

async fn render(app: &App, visitor: Visitor, entry: Entry, result: Option<Compared>) -> PageResult {
    let status = entry.status();
    let template = ComparePage {
        layout: visitor.layout(app, "Compare", Section::Jobs).await?,
        entry,
        result,
    };
    page_with(status, &template)
}
