//! The report of `cargo bench-service`: tables and a chart from its JSON.
//!
//! It is part of this library so that a test can hold the published tables against the published
//! JSON.

use std::fmt::Write as _;

use serde_json::Value;

/// The subject of the tables and the chart of `cargo bench-service`.
#[derive(Debug, Clone, Copy)]
pub enum Section {
    /// The service compared with other programs.
    Service,
    /// The service with many stored jobs compared with the service with few.
    Growth,
}

impl Section {
    /// Returns the name of the file with the section's figures.
    pub const fn json_file(self) -> &'static str {
        match self {
            Self::Service => "benchmarks.json",
            Self::Growth => "benchmarks-growth.json",
        }
    }

    /// Returns the name of the file with the section's chart.
    pub const fn chart_file(self) -> &'static str {
        match self {
            Self::Service => "benchmarks.svg",
            Self::Growth => "benchmarks-growth.svg",
        }
    }

    /// Returns the lines around the section's tables.
    fn marks(self) -> [String; 2] {
        let file = self.json_file();
        ["begin", "end"].map(|edge| format!("<!-- tables from {file}: {edge} -->\n"))
    }
}

/// Returns `page` with new tables in a section, or `None` if it has no place for them.
pub fn replace_tables(page: &str, section: Section, figures: &Value) -> Option<String> {
    let [begin, end] = section.marks();
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!(
        "{before}{begin}\n{}\n{end}{after}",
        markdown(figures)
    ))
}

/// Returns the two tables in Markdown: the comparisons with their targets, and the figures of each
/// program.
pub fn markdown(figures: &Value) -> String {
    let mut page = format!(
        "Medians of {} rounds of {} s with {} connections on {} × {}.\n\n",
        figures["rounds"],
        figures["seconds"],
        figures["connections"],
        figures["processors"]["count"],
        text(&figures["processors"]["model"]),
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "| measured | divided by | figure | result | target | met |\n|---|---|---|---|---|---|"
    );
    for comparison in list(&figures["comparisons"]) {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            code(&comparison["name"]),
            comparison["against"]
                .as_str()
                .map_or_else(|| "–".to_owned(), |_| code(&comparison["against"])),
            text(&comparison["figure"]),
            number(&comparison["value"]),
            text(&comparison["target"]),
            if comparison["met"] == true {
                "yes"
            } else {
                "no"
            },
        );
    }
    let _ = writeln!(
        page,
        "\n| program | per second | p50 | p99 | CPU per request | of which |\n|---|---|---|---|---|---|"
    );
    for program in list(&figures["programs"]) {
        let parts: Vec<String> = program["cpu_micros_of"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(part, micros)| format!("{part} {}", number(micros)))
            .collect();
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            code(&program["name"]),
            number(&program["per_second"]),
            with_unit(&program["p50_ms"], "ms"),
            with_unit(&program["p99_ms"], "ms"),
            with_unit(&program["cpu_micros"], "µs"),
            if parts.is_empty() {
                "–".to_owned()
            } else {
                parts.join(", ")
            },
        );
    }
    page
}

/// Returns a bar chart in SVG: the CPU time per request of each program, by part, on a logarithmic
/// scale of its sum.
pub fn chart(figures: &Value) -> String {
    const LEFT: f64 = 300.0;
    const WIDTH: f64 = 480.0;
    const ROW: f64 = 26.0;
    // One decade of microseconds per fifth of the width, from 10 µs to 1 s.
    let position = |micros: f64| ((micros.max(10.0) / 10.0).log10() / 5.0 * WIDTH).min(WIDTH);
    let measured: Vec<&Value> = list(&figures["programs"])
        .filter(|program| {
            program["cpu_micros"]
                .as_f64()
                .is_some_and(|micros| micros > 0.0)
        })
        .collect();
    let height = ROW * (measured.len() as f64 + 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n<title>CPU time per request of all processes, in microseconds, on a logarithmic scale</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        LEFT + WIDTH + 80.0
    );
    for decade in 0..=5_i32 {
        let micros = 10_f64.powi(decade + 1);
        let x = LEFT + position(micros);
        let label = match decade {
            0..=1 => format!("{micros} µs"),
            _ => format!("{} ms", micros / 1000.0),
        };
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} 0V{}\" stroke=\"#d8dde3\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#57606a\">{label}</text>",
            height - ROW,
            height - 8.0
        );
    }
    for (row, program) in measured.iter().enumerate() {
        let y = ROW * row as f64 + 6.0;
        let micros = program["cpu_micros"].as_f64().unwrap_or_default();
        let name = text(&program["name"]);
        let fill = if name.starts_with("axum") || name.contains("bare") {
            "#8c959f"
        } else if name.starts_with("FastAPI") || name.contains("Celery") {
            "#d29922"
        } else {
            "#1f6feb"
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#1f2328\">{}</text><rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\" fill=\"{fill}\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1f2328\">{}</text>",
            LEFT - 8.0,
            y + 13.0,
            escaped(&name),
            position(micros),
            LEFT + position(micros) + 6.0,
            y + 13.0,
            with_unit(&program["cpu_micros"], "µs"),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a name as code if it is an operation of the API.
fn code(value: &Value) -> String {
    let name = text(value);
    match name.split_once(", ") {
        Some((operation, rest))
            if operation.starts_with("POST ") || operation.starts_with("GET ") =>
        {
            format!("`{operation}`, {rest}")
        }
        None if name.starts_with("GET ") => format!("`{name}`"),
        _ => name,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Returns a number with thousands separators, or with its digits if it is below 100.
fn number(value: &Value) -> String {
    let value = value.as_f64().unwrap_or_default();
    if value < 100.0 {
        return value.to_string();
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns a figure with its unit, or a dash if it was not measured.
fn with_unit(value: &Value, unit: &str) -> String {
    match value.as_f64() {
        Some(figure) if figure > 0.0 => format!("{} {unit}", number(value)),
        _ => "–".to_owned(),
    }
}
