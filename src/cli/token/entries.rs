//! `deltaq token list`, `revoke` and `rotate`.
//!
//! The file is edited as text, so that comments and other entries remain unchanged. The result is parsed again, and
//! it is written only if exactly one entry has changed.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use deltaq_runtime::clock::Clock;
use deltaq_types::Timestamp;
use deltaq_types::duration::DurationText;

use super::file::LockedFile;
use super::{Error, random};
use crate::access::digest_text;
use crate::config::access::{self as token_file, TokenEntry};

/// The header of an entry.
const HEADER: &str = "[[tokens]]";

/// The token file.
#[derive(Debug, Clone, Args)]
pub struct TokenFile {
    /// The token file, access.tokens_file of the server.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
}

/// `deltaq token list`.
#[derive(Debug, Clone, Args)]
pub struct List {
    /// The file.
    #[command(flatten)]
    pub file: TokenFile,
}

/// `deltaq token revoke`.
#[derive(Debug, Clone, Args)]
pub struct Revoke {
    /// Name of the token.
    pub name: String,
    /// The file.
    #[command(flatten)]
    pub file: TokenFile,
}

/// `deltaq token rotate`.
#[derive(Debug, Clone, Args)]
pub struct Rotate {
    /// Name of the token.
    pub name: String,
    /// How long the replaced token is still accepted, such as 1d, so that its clients can change over [default: 0s].
    #[arg(long, value_name = "DURATION")]
    pub keep_old: Option<DurationText>,
    /// The file.
    #[command(flatten)]
    pub file: TokenFile,
}

impl List {
    /// The entries, one per line.
    pub(super) fn run(&self) -> Result<String, Error> {
        let file = LockedFile::open_existing(&self.file.file).map_err(Error::Replace)?;
        let entries = token_file::parse(file.path(), file.text()).map_err(Error::File)?;
        let lines = entries.iter().map(|entry| {
            let grants = entry.grants.iter().map(|grant| {
                let verbs: Vec<_> = grant.verbs.iter().map(|verb| verb.as_str()).collect();
                let sources = grant.sources.as_ref().map(|sources| format!(" as {}", sources.join(",")));
                format!("{} on {}{}", verbs.join(","), grant.queues.join(","), sources.unwrap_or_default())
            });
            let expires = entry.expires.as_deref().unwrap_or("never");
            let old = entry.old_expires.as_ref().map(|until| format!("  the replaced token until {until}"));
            let grants = grants.collect::<Vec<_>>().join("; ");
            format!("{}  {grants}  expires {expires}{}", entry.name, old.unwrap_or_default())
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }
}

impl Revoke {
    /// Removes the entry.
    pub(super) fn run(&self) -> Result<String, Error> {
        let file = LockedFile::open_existing(&self.file.file).map_err(Error::Replace)?;
        let mut entries = token_file::parse(file.path(), file.text()).map_err(Error::File)?;
        let found = position(&entries, &self.name)?;
        entries.remove(found);
        let text = without_entry(file.text(), found);
        write(file, &text, &entries)?;
        Ok(format!(
            "token {} is removed from the file; a running server rejects it within seconds",
            self.name
        ))
    }
}

impl Rotate {
    /// Replaces the token of the entry, and returns the new token.
    pub(super) fn run(&self) -> Result<String, Error> {
        let file = LockedFile::open_existing(&self.file.file).map_err(Error::Replace)?;
        let mut entries = token_file::parse(file.path(), file.text()).map_err(Error::File)?;
        let found = position(&entries, &self.name)?;
        let token = random()?;
        let digest = digest_text(&token);
        let Some(entry) = entries.get_mut(found) else { return Err(unknown(&self.name)) };
        let old = std::mem::replace(&mut entry.sha256, digest);
        (entry.old_sha256, entry.old_expires) = match self.keep_old.filter(|kept| kept.as_us() > 0) {
            Some(kept) => {
                let until = Clock::system().wall_us().saturating_add(kept.as_us());
                (Some(old.clone()), Some(Timestamp::from_micros(until).to_string()))
            }
            None => (None, None),
        };
        let text = with_rotated(file.text(), found, &old, entry);
        write(file, &text, &entries)?;
        Ok(token)
    }
}

fn position(entries: &[TokenEntry], name: &str) -> Result<usize, Error> {
    entries.iter().position(|entry| entry.name == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::Unknown { name: name.to_owned() }
}

/// Replaces the file, if its new text has exactly these entries.
fn write(file: LockedFile, text: &str, entries: &[TokenEntry]) -> Result<(), Error> {
    let parsed = token_file::parse(file.path(), text).ok();
    if parsed.as_deref() != Some(entries) {
        return Err(Error::Edit { path: file.path().to_owned() });
    }
    file.replace(text).map_err(Error::Replace)
}

/// The text in which the entry at this index has the digests of `entry` instead of `old`. The other lines are kept.
fn with_rotated(text: &str, index: usize, old: &str, entry: &TokenEntry) -> String {
    let is_header = |line: &str| line.trim_start().starts_with(HEADER);
    let name = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let (mut rotated, mut entries) = (String::with_capacity(text.len()), 0);
    for line in text.split_inclusive('\n') {
        entries += usize::from(is_header(line));
        if entries != index + 1 {
            rotated.push_str(line);
            continue;
        }
        match name(line).as_str() {
            "old_sha256" | "old_expires" => {}
            "sha256" => {
                rotated.push_str(&line.replacen(old, &entry.sha256, 1));
                for (name, value) in [("old_sha256", &entry.old_sha256), ("old_expires", &entry.old_expires)]
                {
                    if let Some(value) = value {
                        if !rotated.ends_with('\n') {
                            rotated.push('\n');
                        }
                        let _infallible = writeln!(rotated, "{name} = \"{value}\"");
                    }
                }
            }
            _ => rotated.push_str(line),
        }
    }
    rotated
}

/// The text without the entry at this index. Comments and blank lines before the next entry are kept.
fn without_entry(text: &str, index: usize) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &&str| line.trim_start().starts_with(HEADER);
    let mut headers = lines.iter().enumerate().filter(|(_, line)| is_header(line)).map(|(at, _)| at);
    let (begin, next) = (headers.nth(index).unwrap_or(lines.len()), headers.next());
    let mut end = next.unwrap_or(lines.len());
    let is_between = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    while end > begin && next.is_some() && lines.get(end - 1).is_some_and(is_between) {
        end -= 1;
    }
    let kept = lines.iter().enumerate().filter(|(at, _)| !(begin..end).contains(at));
    kept.map(|(_, line)| *line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::token::Token;
    use crate::config::access::Verb;

    #[test]
    fn entries_are_listed_revoked_and_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let make = |name: &str| {
            let (verbs, queues) = (vec![Verb::Read, Verb::Consume], vec!["erp-*".to_owned()]);
            let name = name.to_owned();
            Token {
                name,
                verbs,
                queues,
                sources: Vec::new(),
                expires: None,
                rate: None,
                burst: None,
                file: file.clone(),
            }
            .run()
            .unwrap()
        };
        let first = make("a");
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "\n# The second one.\n").unwrap();
        let second = make("b");
        make("c");
        let at = || TokenFile { file: file.clone() };
        let list = || List { file: at() }.run().unwrap();
        assert_eq!(list().lines().next().unwrap(), "a  read,consume on erp-*  expires never");

        Revoke { name: "a".to_owned(), file: at() }.run().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("# The second one.") && !text.contains(&digest_text(&first)), "{text}");
        assert!(matches!(Revoke { name: "a".to_owned(), file: at() }.run(), Err(Error::Unknown { .. })));

        let rotate = |keep_old: Option<&str>| {
            let keep_old = keep_old.map(|text| text.parse().unwrap());
            Rotate { name: "b".to_owned(), keep_old, file: at() }.run().unwrap()
        };
        // Each rotation keeps at most the token that it replaces.
        let kept = rotate(Some("1d"));
        let once_more = rotate(Some("1h"));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("old_sha256 = \"{}\"", digest_text(&kept))), "{text}");
        assert!(text.contains(&digest_text(&once_more)) && !text.contains(&digest_text(&second)), "{text}");
        assert!(list().contains("  the replaced token until 20"), "{}", list());
        let rotated = rotate(None);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&digest_text(&rotated)) && !text.contains("old_"), "{text}");
        assert_eq!(list().lines().count(), 2);
    }

    #[test]
    fn a_file_in_another_form_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let digest = digest_text("secret");
        let text = format!(
            "tokens = [{{ name = \"a\", sha256 = \"{digest}\", grants = [{{ verbs = [\"read\"], queues = [\"*\"] }}] }}]\n"
        );
        std::fs::write(&file, &text).unwrap();
        let revoke = Revoke { name: "a".to_owned(), file: TokenFile { file: file.clone() } };
        assert!(matches!(revoke.run(), Err(Error::Edit { .. })));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
