//! The table of settings in docs/configuration.md is generated from config/deltaq.toml.

use std::fmt::Write as _;
use std::fs;

use super::root;

const DOCUMENT: &str = "docs/configuration.md";
const BEGIN: &str = "<!-- generated from config/deltaq.toml by tests/it/tidy/configuration.rs -->\n";
const END: &str = "<!-- end -->\n";

/// The name and the value of a line such as `#listen = "..."`, which shows a default, or `# public_url = "..."`, which shows an example.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.trim_start_matches(['#', ' ']).split_once(" = ")?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(is_name).then_some((name, value))
}

fn section(line: &str) -> Option<&str> {
    let name = line.trim_start_matches("# ").strip_prefix('[')?.strip_suffix(']')?;
    name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.').then_some(name)
}

/// The settings as Markdown, one table per section.
fn tables(toml: &str) -> String {
    let (mut markdown, mut name_of_section, mut text) = (String::new(), String::new(), String::new());
    for line in toml.lines() {
        if let Some(name) = section(line) {
            name.clone_into(&mut name_of_section);
            let _ = write!(markdown, "\n### `[{name}]`\n\n");
            if !text.is_empty() {
                let _ = write!(markdown, "{}\n\n", text.trim());
            }
            markdown.push_str("| setting | default | meaning |\n|---|---|---|\n");
            text.clear();
        } else if let Some((name, value)) = setting(line) {
            let default =
                if line.starts_with("# ") { format!("none; e.g. `{value}`") } else { format!("`{value}`") };
            let _ = writeln!(markdown, "| `{name}` | {default} | {} |", text.trim().replace('|', "\\|"));
            text.clear();
        } else if let Some(comment) = line.strip_prefix('#') {
            text.push_str(comment);
        } else {
            text.clear();
        }
    }
    assert!(!name_of_section.is_empty(), "config/deltaq.toml has no sections");
    markdown
}

#[test]
fn the_page_lists_every_setting() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("the file is there");
    let (document, toml) = (read(DOCUMENT), read("config/deltaq.toml"));
    let (before, rest) = document.split_once(BEGIN).expect("the mark of the beginning");
    let (_, after) = rest.split_once(END).expect("the mark of the end");
    let wanted = format!("{before}{BEGIN}{}\n{END}{after}", tables(&toml));
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the server")]
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(DOCUMENT), &wanted).expect("the document can be written");
    } else {
        assert!(
            document == wanted,
            "run `UPDATE_DOCS=1 cargo test -p deltaq --test it tidy::` to update {DOCUMENT}"
        );
    }
}
