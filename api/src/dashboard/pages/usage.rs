//! Usage and limits.

use askama::Template;
use assay_core::model::permissions::UsageReader;
use assay_core::model::usage::{Usage, UsageDay};
use axum::extract::State;
use serde::Serialize;

use crate::app::App;
use crate::dashboard::charts::days;
use crate::dashboard::csv;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, page_with};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Visitor};
use crate::generated::inputs;
use crate::ops::usage;

#[derive(Template)]
#[template(path = "pages/usage.html")]
struct UsagePage {
    layout: Layout,
    entry: Entry,
    usage: Usage,
    days: Vec<UsageDay>,
    chart: Option<[String; 2]>,
    forecast: Option<String>,
}

/// A limit with its used part.
struct Meter {
    name: &'static str,
    used: i64,
    max: i64,
}

impl UsagePage {
    /// Returns the month's limits.
    fn meters(&self) -> Vec<Meter> {
        let (totals, limits) = (&self.usage.totals, &self.usage.limits);
        let meter = |name, used, max| Meter { name, used, max };
        vec![
            meter(
                "Predictions that were scored",
                totals.eval_items,
                limits.eval_items_per_month,
            ),
            meter(
                "Sequences that models predicted",
                totals.predict_items,
                limits.predict_items_per_month,
            ),
            meter(
                "Events that models generated",
                totals.generated_events,
                limits.generated_events_per_month,
            ),
            meter("Embeddings", totals.embeddings, limits.embeddings_per_month),
        ]
    }

    /// Returns the exported table's query.
    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for name in ["from", "to"] {
            if let Some(value) = self.entry.form.given(name) {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }
}

/// Returns when the month's limit is reached, if the use goes on as in this month so far.
fn forecast(usage: &Usage, now: assay_core::Timestamp) -> Option<String> {
    let day = 86_400_000_000_i64;
    let elapsed = now.unix_micros() - usage.period_start.unix_micros();
    let used = usage.totals.eval_items;
    let limit = usage.limits.eval_items_per_month;
    // Half a day says little about a month.
    if elapsed < day / 2 || used == 0 || used >= limit {
        return None;
    }
    let needed = i128::from(elapsed) * i128::from(limit) / i128::from(used);
    let reached = usage
        .period_start
        .plus_micros(i64::try_from(needed).ok()?.min(62 * day));
    Some(if reached < usage.period_end {
        let text = reached.to_string();
        format!(
            "At this rate, you reach the limit on {}.",
            text.get(..10).unwrap_or(&text)
        )
    } else {
        String::from("At this rate, the limit is not reached this month.")
    })
}

/// Shows the month's usage and by day.
pub async fn show(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    let reader: UsageReader = visitor.proof()?;
    let usage = usage::get(&app, &reader).await?;
    let (days, entry) = match read_days(&app, &reader, &query).await {
        Ok(days) => (days, Entry::new(query)),
        Err(error) => (Vec::new(), Entry::rejected(&query, error)?),
    };
    let status = entry.status();
    let layout = visitor.layout(&app, "Usage", Section::Usage).await?;
    let template = UsagePage {
        forecast: forecast(&usage, layout.now),
        layout,
        entry,
        usage,
        chart: days::draw(&days),
        days,
    };
    page_with(status, &template)
}

async fn read_days(
    app: &App,
    reader: &UsageReader,
    query: &Form,
) -> assay_core::Result<Vec<UsageDay>> {
    let range = inputs::ListUsageDays {
        from: query.given("from").map(str::to_owned),
        to: query.given("to").map(str::to_owned),
    };
    Ok(usage::days(app, reader, range).await?.days)
}

/// An exported table row.
#[derive(Serialize)]
struct Row {
    date: String,
    eval_items: i64,
    eval_items_refunded: i64,
    jobs: i64,
    requests: i64,
}

/// Returns the usage by day as CSV.
pub async fn export(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    let reader: UsageReader = visitor.proof()?;
    let days = read_days(&app, &reader, &query).await?;
    let rows = days.into_iter().map(|day| {
        let UsageDay {
            date,
            eval_items,
            eval_items_refunded,
            jobs,
            requests,
        } = day;
        Row {
            date: date.to_string(),
            eval_items,
            eval_items_refunded,
            jobs,
            requests,
        }
    });
    csv::response("usage.csv", rows)
}
