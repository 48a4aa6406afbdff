//! Reads the objects of a seed.

use std::sync::Arc;

use deltaq_engine::Seed;
use deltaq_engine::config::Config;
use deltaq_engine::id::Source;
use deltaq_engine::key::Key;
use deltaq_engine::object::Objects;
use deltaq_service::admission::Admission;
use deltaq_types::SeedCall;

use super::admitted::{AdmissionRules, ObjectUse, Reader, key_or_explicit};
use super::body::{Format, Incoming};
use super::documents::{Document, Documents};
use super::ndjson::Lines;
use super::params::check_name;
use super::received::{BatchLimit, empty_body, object_bytes_max};
use super::replace_list::GATHERED_BYTES;
use crate::http::problem::Problem;

/// Reads the objects of a seed. The first wrong object ends the reading.
pub(in crate::http) async fn read_seeds(
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
) -> Result<Vec<Seed>, Problem> {
    let account = incoming.account();
    let mut seeds = SeedReader { seeds: Vec::new(), documents: Vec::new(), bytes: 0, rules };
    if incoming.format == Format::Ndjson {
        let longest = object_bytes_max(&incoming, &rules.config, false);
        let mut lines = Lines::new(incoming, longest);
        loop {
            let text = match lines.next().await {
                Ok(Some(text)) => text,
                Ok(None) => break,
                Err(problem) => return Err(seeds.first_problem(problem).await),
            };
            most.check(seeds.len() + 1)?;
            account.reserve_object(0)?;
            let bytes = text.len();
            seeds.add(Document::of_line(text, lines.number()), bytes).await?;
        }
        return seeds.finish().await;
    }
    let text = incoming.text().await?;
    if text.trim().is_empty() {
        return Err(empty_body());
    }
    let mut documents = Documents::of(text);
    let text = documents.text();
    let mut objects = Objects::of_envelopes(&text)?;
    while objects.has_next() {
        most.check(seeds.len() + 1)?;
        let raw = match objects.next_text() {
            Ok(raw) => raw.unwrap_or_default(),
            Err(error) => return Err(seeds.first_problem(error.into()).await),
        };
        account.reserve_object(raw.len())?;
        seeds.add(documents.next(raw), raw.len()).await?;
    }
    seeds.finish().await
}

/// The seeds that have been read, and the next documents.
struct SeedReader<'r> {
    seeds: Vec<Seed>,
    documents: Vec<Document>,
    /// Size of the documents in bytes.
    bytes: usize,
    rules: &'r AdmissionRules,
}

impl SeedReader<'_> {
    fn len(&self) -> usize {
        self.seeds.len() + self.documents.len()
    }

    async fn add(&mut self, document: Document, bytes: usize) -> Result<(), Problem> {
        self.documents.push(document);
        self.bytes += bytes;
        if self.bytes < GATHERED_BYTES && self.documents.len() < self.rules.slice_len() {
            return Ok(());
        }
        self.read().await?;
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Problem> {
        let before = self.seeds.len();
        self.bytes = 0;
        let documents = Arc::new(std::mem::take(&mut self.documents));
        let read = self.rules.each(documents, move |reader, index, document: &Document| {
            seed_call(document, reader).map_err(|problem| document.problem(before + index, problem))
        });
        self.seeds.extend(read.await?);
        Ok(())
    }

    /// The first problem in the documents so far. If they have none, it is `problem`, which comes after them.
    async fn first_problem(&mut self, problem: Problem) -> Problem {
        self.read().await.err().unwrap_or(problem)
    }

    async fn finish(mut self) -> Result<Vec<Seed>, Problem> {
        self.read().await?;
        Ok(self.seeds)
    }
}

/// Reads one line of a seed according to the rules of `/seed`, for an import into a store without a server.
///
/// # Errors
/// The detail of the problem that a caller of `/seed` would get.
pub fn read_seed(line: &str, config: &Config, admission: Option<&Admission>) -> Result<Seed, String> {
    let document = Document::alone(line.to_owned());
    seed_call(&document, &mut Reader::new(config, admission)).map_err(|problem| problem.to_string())
}

fn seed_call(document: &Document, reader: &mut Reader<'_>) -> Result<Seed, Problem> {
    let call: SeedCall<'_> = document.envelope()?;
    let explicit = call.key.as_deref().map(Key::new).transpose()?;
    let scanned = reader.admitted(document.object(call.object, &reader.config.key)?, ObjectUse::Stored)?;
    reader.check_length(&scanned.object)?;
    if let Some(source) = &call.source {
        check_name(source).map_err(|wrong| wrong.field("source"))?;
    }
    let key = key_or_explicit(scanned.key, explicit.as_ref())?;
    Ok((key, scanned.object, call.source.as_deref().map(Source::from)))
}
