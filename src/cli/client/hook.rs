//! `deltaq hook ...`.

use std::path::PathBuf;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use clap::Args;
use deltaq_runtime::causes::with_causes;
use deltaq_types::name::Name;
use deltaq_types::{DeliveriesBody, DeliveriesCount, DeliveryDocument, Hook, Redelivered};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::confirm::confirm;
use super::failure::Failure;
use super::output::{Cell, Output, Row, Tone};
use super::session::{Execute, Session};
use crate::hooks::verify;
use crate::secrets::{Secret, Use};

super::commands! {
    /// Commands on the deliveries of hooks.
    HookCommands {
        /// List the deliveries that a queue keeps because it could not apply them.
        #[command(after_help = "Example:\n  deltaq hook list issues")]
        List(List),
        /// Show a kept delivery with its headers and its body.
        #[command(after_help = "Example:\n  deltaq hook show issues 246012342272004 -o json | jq -r .body")]
        Show(Show),
        /// Apply kept deliveries with the current settings of the queue; exit code 1 if some could not be applied again.
        #[command(after_help = "Examples:\n  deltaq hook redeliver issues 246012342272004\n  deltaq hook redeliver issues --all")]
        Redeliver(Redeliver),
        /// Discard kept deliveries.
        #[command(after_help = "Example:\n  deltaq hook discard issues --all")]
        Discard(Discard),
        /// Verify the signature of a delivery in a file as the server would, and say what is wrong; exit code 1 if it is wrong.
        #[command(after_help = "Example:\n  deltaq hook verify github --secret-file github-secret --body delivery.json \\\n    --header 'x-hub-signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17'")]
        Verify(Verify),
    }
}

/// `deltaq hook list`.
#[derive(Debug, Clone, Args)]
pub struct List {
    /// The name of the queue.
    pub queue: Name,
}

/// `deltaq hook show`.
#[derive(Debug, Clone, Args)]
pub struct Show {
    /// The name of the queue.
    pub queue: Name,
    /// The number of the delivery, from `deltaq hook list`.
    pub number: u64,
}

/// Some kept deliveries, or all.
#[derive(Debug, Clone, Args)]
#[group(id = "which_deliveries", required = true, multiple = false)]
pub struct WhichDeliveries {
    /// The numbers of the deliveries.
    pub numbers: Vec<u64>,
    /// All kept deliveries.
    #[arg(long)]
    pub all: bool,
}

/// `deltaq hook redeliver`.
#[derive(Debug, Clone, Args)]
pub struct Redeliver {
    /// The name of the queue.
    pub queue: Name,
    /// The deliveries.
    #[command(flatten)]
    pub which: WhichDeliveries,
}

/// `deltaq hook discard`.
#[derive(Debug, Clone, Args)]
pub struct Discard {
    /// The name of the queue.
    pub queue: Name,
    /// The deliveries.
    #[command(flatten)]
    pub which: WhichDeliveries,
    /// Do not ask for confirmation of --all.
    #[arg(short, long)]
    pub yes: bool,
}

/// `deltaq hook verify`.
#[derive(Debug, Clone, Args)]
pub struct Verify {
    /// The scheme: standard, github, stripe, shopify, slack, gitlab or hmac.
    pub scheme: String,
    /// File of the secret, in the form of the setting hooks.secrets.NAME.file.
    #[arg(long, value_name = "FILE")]
    pub secret_file: PathBuf,
    /// File of the body, byte for byte as it was sent.
    #[arg(long, value_name = "FILE")]
    pub body: PathBuf,
    /// A header of the delivery, "name: value"; repeat the option for each.
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// The member signature of the setting hook, as JSON; only with the scheme hmac.
    #[arg(long, value_name = "JSON")]
    pub signature: Option<String>,
    /// The time of the check in seconds since 1970 [default: now]. Use it to check an old delivery, whose time is outside the window of 5 minutes.
    #[arg(long, value_name = "SECONDS")]
    pub at: Option<u64>,
}

impl WhichDeliveries {
    fn body(&self) -> DeliveriesBody {
        DeliveriesBody { numbers: (!self.all).then(|| self.numbers.clone()), all: self.all }
    }
}

/// A list of deliveries, each as its text.
#[derive(Deserialize)]
struct DeliveryTexts {
    deliveries: Vec<Box<RawValue>>,
}

impl Row for DeliveryDocument {
    const COLUMNS: &'static [&'static str] = &["NUMBER", "RECEIVED", "REASON", "BYTES", "DETAIL"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(self.number.to_string()),
            Cell::new(self.received_at.to_string()),
            Cell::new(self.reason.as_str()).tone(Tone::Bad),
            Cell::number(self.bytes),
            Cell::new(&self.detail),
        ]
    }

    fn name(&self) -> String {
        self.number.to_string()
    }
}

impl Execute for List {
    const OPERATIONS: &'static [&'static str] = &["list_deliveries"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("list_deliveries", &self.queue)?;
        let texts: DeliveryTexts = session.client.fetch(call).await?;
        let mut list = session.output.list::<DeliveryDocument>();
        list.add::<DeliveryDocument>(&texts.deliveries)?;
        list.finish("no kept deliveries")
    }
}

impl Execute for Show {
    const OPERATIONS: &'static [&'static str] = &["get_delivery"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let number = self.number.to_string();
        let call = session.call("get_delivery", self.queue.as_str(), &number)?;
        let (delivery, text) = session.fetch::<DeliveryDocument>(call).await?;
        let headers = delivery.headers.iter().flatten();
        let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {value}")).collect();
        let fields = vec![
            ("number", Cell::new(&number)),
            ("received", Cell::new(delivery.received_at.to_string())),
            ("reason", Cell::new(delivery.reason.as_str()).tone(Tone::Bad)),
            ("detail", Cell::new(&delivery.detail)),
            ("headers", Cell::new(headers.join(", "))),
            ("body", Cell::new(delivery.body.as_deref().unwrap_or_default())),
        ];
        session.output.document(&text, &number, fields)
    }
}

impl Execute for Redeliver {
    const OPERATIONS: &'static [&'static str] = &["redeliver_deliveries"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("redeliver_deliveries", &self.queue)?.json(&self.which.body());
        let (done, text) = session.fetch::<Redelivered>(call).await?;
        let sentence = format!("{} applied, {} kept", deliveries(done.applied), done.kept);
        session.output.change(&text, self.queue.as_str(), &sentence)?;
        if let Some(why) = &done.detail {
            return Err(Failure::Other(format!("{} can't be applied: {why}", deliveries(done.kept))));
        }
        if done.applied == 0 && !self.which.all {
            return Err(Failure::Nothing("the queue keeps none of these deliveries".to_owned()));
        }
        Ok(())
    }
}

impl Execute for Discard {
    const OPERATIONS: &'static [&'static str] = &["discard_deliveries"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if self.which.all {
            confirm(self.yes, &format!("discard all kept deliveries of queue {}", self.queue))?;
        }
        let call = session.on_queue("discard_deliveries", &self.queue)?.json(&self.which.body());
        let (count, text) = session.fetch::<DeliveriesCount>(call).await?;
        let sentence = format!("{} discarded", deliveries(count.deliveries));
        session.output.change(&text, self.queue.as_str(), &sentence)?;
        if count.deliveries == 0 && !self.which.all {
            return Err(Failure::Nothing("the queue keeps none of these deliveries".to_owned()));
        }
        Ok(())
    }
}

impl Execute for Verify {
    const OPERATIONS: &'static [&'static str] = &[];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let failed = Failure::Usage;
        let signature = match &self.signature {
            Some(text) => {
                serde_json::from_str(text).map_err(|error| failed(format!("--signature: {error}")))?
            }
            None => json!(null),
        };
        let hook = json!({"scheme": self.scheme, "secrets": ["given"], "signature": signature});
        let hook: Hook = serde_json::from_value(hook).map_err(|error| failed(error.to_string()))?;
        if let Some((member, why)) = hook.fault() {
            return Err(failed(format!("--{member}: {why}")));
        }
        let secret = Secret::read(Use::Hooks, "--secret-file", &self.secret_file)
            .map_err(|error| failed(with_causes(&error)))?;
        let body = std::fs::read(&self.body);
        let body = body.map_err(|error| failed(format!("can't read {}: {error}", self.body.display())))?;
        let now = self.at.unwrap_or_else(|| session.clock.wall_us() / 1_000_000);
        verify(&hook, &[&secret], &headers(&self.header)?, &body, now)
            .map_err(|why| Failure::Other(why.to_string()))?;
        Output::text("the signature is valid\n")
    }
}

fn deliveries(number: u64) -> String {
    format!("{number} {}", if number == 1 { "delivery" } else { "deliveries" })
}

fn headers(texts: &[String]) -> Result<HeaderMap, Failure> {
    let header = |text: &String| {
        let (name, value) = text.split_once(':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value.trim()).ok()?))
    };
    let wrong = |text: &String| Failure::Usage(format!("--header takes \"name: value\", not {text:?}"));
    texts.iter().map(|text| header(text).ok_or_else(|| wrong(text))).collect()
}
