//! Leaderboards, and the organization's entries on them.

use askama::Template;
use assay_core::Result;
use assay_core::model::baselines::{BoardBaseline, VsBaselineResult};
use assay_core::model::board::{Board, BoardRow, BoardStatus, Entry as BoardEntry};
use assay_core::model::job::Job;
use assay_core::model::permissions::{EvalSubmitter, JobReader, SuiteVisitor};
use assay_core::model::suite::{BoardMode, Suite};
use axum::extract::{Path, State};

use crate::app::App;
use crate::dashboard::charts::spark;
use crate::dashboard::filters;
use crate::dashboard::form::Entry;
use crate::dashboard::response::{PageResult, page, page_with, redirect_with_notice};
use crate::dashboard::score::Score;
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Submitted, Visitor};
use crate::generated::inputs;
use crate::ops::{boards, jobs, suites};

/// Entries on a page.
const ROWS: i64 = 200;

#[derive(Template)]
#[template(path = "pages/board.html")]
struct BoardPage {
    layout: Layout,
    suite: Suite,
    /// `None` if the suite has no board.
    board: Option<ShownBoard>,
    /// The organization's entries on the board.
    own: Vec<BoardEntry>,
}

/// A board with what its page needs.
struct ShownBoard {
    board: Board,
    baselines: Vec<ShownBaseline>,
    tiers: Vec<Tier>,
}

/// A baseline with a chart for its value and interval, in the rows' range.
struct ShownBaseline {
    baseline: BoardBaseline,
    chart: String,
}

/// A tier's rows that are on the page.
struct Tier {
    number: i64,
    rows: Vec<ShownRow>,
}

/// A row with a chart for its value and interval.
struct ShownRow {
    row: BoardRow,
    chart: String,
}

impl ShownBoard {
    fn new(mut board: Board) -> Self {
        let mut tiers: Vec<Tier> = Vec::new();
        let baseline_score = |baseline: &BoardBaseline| Score {
            value: baseline.value,
            stderr: None,
            ci95: baseline.ci95,
        };
        let scores = board.entries.iter().map(score);
        let scores = scores.chain(board.baselines.iter().map(baseline_score));
        let range = spark::range(scores).unwrap_or_default();
        let baselines = std::mem::take(&mut board.baselines).into_iter();
        let baselines = baselines.map(|baseline| ShownBaseline {
            chart: spark::draw(&baseline_score(&baseline), range),
            baseline,
        });
        let baselines = baselines.collect();
        for row in std::mem::take(&mut board.entries) {
            let number = row.tier;
            let chart = spark::draw(&score(&row), range);
            let shown = ShownRow { row, chart };
            match tiers.last_mut().filter(|tier| tier.number == number) {
                Some(tier) => tier.rows.push(shown),
                None => tiers.push(Tier {
                    number,
                    rows: vec![shown],
                }),
            }
        }
        Self {
            board,
            baselines,
            tiers,
        }
    }
}

impl ShownRow {
    /// Returns the names of the baselines that the entry is significantly better than, and worse than.
    fn separated(&self) -> [Vec<&str>; 2] {
        [VsBaselineResult::Better, VsBaselineResult::Worse].map(|result| {
            let found = self.row.vs_baselines.iter();
            let found = found.filter(|versus| versus.result == result);
            found.map(|versus| versus.name.as_str()).collect()
        })
    }
}

/// Returns a row's figure with its interval.
fn score(row: &BoardRow) -> Score {
    Score {
        value: row.value,
        stderr: None,
        ci95: row.ci95,
    }
}

#[derive(Template)]
#[template(path = "pages/enter_board.html")]
struct EnterPage {
    layout: Layout,
    entry: Entry,
    job: Job,
    /// Set if only final jobs can enter, and this one is not final.
    needs_final: bool,
}

#[derive(Template)]
#[template(path = "pages/withdraw_entry.html")]
struct WithdrawPage {
    layout: Layout,
    entry: BoardEntry,
}

/// Shows a suite's board.
pub async fn show(
    State(app): State<App>,
    visitor: Visitor,
    Path(suite_id): Path<String>,
    Query(query): Query,
) -> PageResult {
    let suite = suites::get(&app, &visitor.proof()?, &suite_id).await?;
    let board = match suite.board {
        BoardMode::Off => None,
        BoardMode::Live | BoardMode::AtClose => {
            let page = inputs::GetLeaderboard {
                version: None,
                limit: Some(ROWS),
                cursor: query.given("cursor").map(str::to_owned),
            };
            let reader: SuiteVisitor = visitor.proof()?;
            let found = boards::get(&app, &reader, &suite_id, page).await?;
            Some(ShownBoard::new(found))
        }
    };
    let mut own = own_entries(&app, &visitor, &suite_id).await?;
    own.retain(|entry| entry.suite_version == suite.version);
    let layout = visitor
        .layout(&app, format!("Board of {suite_id}"), Section::Suites)
        .await?;
    page(&BoardPage {
        layout,
        suite,
        board,
        own,
    })
}

/// Returns the organization's newest entries for a suite.
async fn own_entries(app: &App, visitor: &Visitor, suite_id: &str) -> Result<Vec<BoardEntry>> {
    let reader: JobReader = visitor.proof()?;
    let newest = inputs::ListEntries {
        suite_id: Some(suite_id.to_owned()),
        limit: Some(ROWS),
        before: None,
    };
    Ok(boards::list_entries(app, &reader, newest).await?.entries)
}

/// Shows the form that enters a job on its suite's board.
pub async fn new(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
) -> PageResult {
    enter_page(&app, visitor, &job_id, Entry::default()).await
}

async fn enter_page(app: &App, visitor: Visitor, job_id: &str, entry: Entry) -> PageResult {
    let reader: JobReader = visitor.proof()?;
    let job = jobs::get(app, &reader, job_id, inputs::GetJob::default()).await?;
    let needs_final = match &job.versions.suite_id {
        Some(suite_id) if !job.r#final => {
            let suite = suites::get(app, &visitor.proof()?, suite_id.as_str()).await?;
            suite.n_sealed > 0
        }
        _ => false,
    };
    let status = entry.status();
    let layout = visitor.layout(app, "Enter a board", Section::Jobs).await?;
    let template = EnterPage {
        layout,
        entry,
        job,
        needs_final,
    };
    page_with(status, &template)
}

/// Enters a job on its suite's board.
pub async fn enter(
    State(app): State<App>,
    visitor: Visitor,
    Path(job_id): Path<String>,
    Submitted(fields): Submitted,
) -> PageResult {
    let submitter: EvalSubmitter = visitor.proof()?;
    let new = inputs::CreateEntry {
        name: fields.get("name").to_owned(),
        url: fields.given("url").map(str::to_owned),
    };
    let entered = match fields.given("final") {
        Some(_) => boards::enter_final(&app, &submitter, &job_id, new).await,
        None => boards::enter(&app, &submitter, &job_id, new).await,
    };
    match entered {
        Ok(entry) => {
            let notice = format!("{} has entered the board.", entry.name);
            let path = format!("/suites/{}/board", entry.suite_id);
            Ok(redirect_with_notice(&path, &notice))
        }
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            enter_page(&app, visitor, &job_id, entry).await
        }
    }
}

/// Shows what withdrawing an entry changes.
pub async fn confirm_withdrawal(
    State(app): State<App>,
    visitor: Visitor,
    Path(entry_id): Path<String>,
) -> PageResult {
    let entry = boards::get_entry(&app, &visitor.proof()?, &entry_id).await?;
    let layout = visitor
        .layout(&app, "Withdraw an entry", Section::Suites)
        .await?;
    page(&WithdrawPage { layout, entry })
}

/// Withdraws an entry.
pub async fn withdraw(
    State(app): State<App>,
    visitor: Visitor,
    Path(entry_id): Path<String>,
) -> PageResult {
    let entry = boards::withdraw(&app, &visitor.proof()?, &entry_id).await?;
    let path = format!("/suites/{}/board", entry.suite_id);
    Ok(redirect_with_notice(&path, "The entry was withdrawn."))
}
