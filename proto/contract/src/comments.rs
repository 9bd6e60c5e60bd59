//! The comments of declarations.

use prost_reflect::FileDescriptor;

/// The width at which generated sentences wrap, as in Rust comments.
const WIDTH: usize = 96;

/// Returns the paragraphs of the comment above a declaration: their lines, as they are written.
pub fn paragraphs(file: &FileDescriptor, path: &[i32]) -> Vec<Vec<String>> {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let locations = info.map_or(&[][..], |info| &info.location);
    let comment = locations
        .iter()
        .find(|location| location.path == path)
        .and_then(|location| location.leading_comments.as_deref())
        .unwrap_or_default();
    let lines: Vec<_> = comment.lines().map(str::trim).collect();
    lines
        .split(|line| line.is_empty())
        .filter(|lines| !lines.is_empty())
        .map(|lines| lines.iter().map(|line| (*line).to_owned()).collect())
        .collect()
}

/// Returns the paragraphs without those for readers of gRPC only.
pub fn for_rest(paragraphs: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let is_shared = |lines: &Vec<String>| !lines.iter().any(|line| line.starts_with("gRPC:"));
    paragraphs.into_iter().filter(is_shared).collect()
}

/// Returns the lines of paragraphs, with an empty line between two.
pub fn lines(paragraphs: &[Vec<String>]) -> Vec<String> {
    paragraphs.join(&String::new())
}

/// Returns a text in lines that are not too long.
pub fn wrap(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
