//! The connection to a Kubernetes API: from a kubeconfig, or from the service account of a pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use deltaq_types::duration::DurationText;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Identity, Url};
use serde::Deserialize;
use serde_json::Value;

use super::super::{Error, http};
use crate::settings;

/// How connections are checked, as client-go does it.
const PINGS: Pings = Pings { after: Duration::from_secs(30), timeout: Duration::from_secs(15) };
/// The files of the service account of a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A server with the credentials for it.
#[derive(Debug)]
pub(super) struct Access {
    settings: settings::Kubernetes,
    timeout: DurationText,
    max_bytes: u64,
    credentials: Credentials,
    http: http::Client,
}

/// The address of the server, and what its connections need. The files have been read.
#[derive(PartialEq)]
struct Credentials {
    server: Url,
    /// Certificates of authorities in PEM, instead of those of the system.
    authorities: Option<Vec<u8>>,
    trusts_all: bool,
    /// A client certificate and its key in PEM.
    identity: Option<Vec<u8>>,
    token: Token,
}

/// The checks of an HTTP/2 connection. If it is lost without a word, all its requests end, and the next request begins
/// another connection.
#[derive(Clone, Copy)]
struct Pings {
    /// The time of silence after which a ping is sent, also if no request waits for its reply.
    after: Duration,
    /// The time after which a connection without a reply to the ping is lost.
    timeout: Duration,
}

/// The location of the token.
#[derive(PartialEq)]
enum Token {
    None,
    Text(HeaderValue),
    /// A file that is read for each request, because it is replaced from time to time.
    File(PathBuf),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A kubeconfig. Its format has names with `-`. A list may be null, because `kubectl config` writes an empty list as
/// null.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Debug, Deserialize)]
struct Context {
    cluster: Option<String>,
    /// Absent or empty for a server without authentication, such as `kubectl proxy`.
    user: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// Members of a cluster or a user that do not affect the connection.
const NO_CONNECTION: [&str; 2] = ["extensions", "disable-compression"];

impl Access {
    pub(super) fn new(settings: &settings::Kubernetes, source: &settings::Source) -> Result<Self, Error> {
        let credentials = Credentials::read(settings)?;
        let http = credentials.client(source.timeout, source.max_bytes, PINGS)?;
        let (settings, timeout, max_bytes) = (settings.clone(), source.timeout, source.max_bytes);
        Ok(Self { settings, timeout, max_bytes, credentials, http })
    }

    /// Reads the kubeconfig and the files of credentials again. Returns whether they have changed.
    pub(super) fn refresh(&mut self) -> Result<bool, Error> {
        let credentials = Credentials::read(&self.settings)?;
        if credentials == self.credentials {
            return Ok(false);
        }
        self.http = credentials.client(self.timeout, self.max_bytes, PINGS)?;
        self.credentials = credentials;
        Ok(true)
    }

    pub(super) const fn server(&self) -> &Url {
        &self.credentials.server
    }

    pub(super) const fn client(&self) -> &http::Client {
        &self.http
    }

    pub(super) const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The headers of a request.
    pub(super) fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        let token = match &self.credentials.token {
            Token::None => return Ok(headers),
            Token::Text(token) => token.clone(),
            Token::File(path) => {
                let shown = path.display();
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Error::because(format!("can't read the token {shown}"), error))?;
                bearer(&text).ok_or_else(|| Error::new(format!("{shown} has no token")))?
            }
        };
        headers.insert(AUTHORIZATION, token);
        Ok(headers)
    }
}

impl Credentials {
    fn read(settings: &settings::Kubernetes) -> Result<Self, Error> {
        match &settings.kubeconfig {
            Some(path) => Self::of_kubeconfig(path, settings.context.as_deref()),
            None => Self::of_pod(),
        }
    }

    /// The access of a pod, from the variables and files that Kubernetes provides.
    fn of_pod() -> Result<Self, Error> {
        let (host, port) = kubernetes_service()
            .ok_or_else(|| Error::new("outside of a pod the setting kubeconfig is required"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let folder = Path::new(SERVICE_ACCOUNT);
        Ok(Self {
            server: parse(&format!("https://{host}:{port}"))?,
            authorities: Some(read(&folder.join("ca.crt"))?),
            trusts_all: false,
            identity: None,
            token: Token::File(folder.join("token")),
        })
    }

    fn of_kubeconfig(path: &Path, context: Option<&str>) -> Result<Self, Error> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::because(format!("can't read {shown} (kubeconfig)"), error))?;
        // The parser's error may show a part of the file.
        let kubeconfig: Kubeconfig = serde_saphyr::from_str(&text)
            .map_err(|_| Error::new(format!("{shown} is not a kubeconfig in YAML")))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (cluster, user) =
            kubeconfig.chosen(context).map_err(|why| Error::new(format!("{shown}: {why}")))?;
        let of_pair = |file: Option<&Path>, data: Option<&str>| contents(folder, file, data);
        let authorities =
            of_pair(cluster.certificate_authority.as_deref(), cluster.certificate_authority_data.as_deref())?;
        let certificate =
            of_pair(user.client_certificate.as_deref(), user.client_certificate_data.as_deref())?;
        let key = of_pair(user.client_key.as_deref(), user.client_key_data.as_deref())?;
        if certificate.is_some() != key.is_some() {
            let why = "the user has a client certificate without its key, or a key without its certificate";
            return Err(Error::new(format!("{shown}: {why}")));
        }
        let identity =
            certificate.zip(key).map(|(certificate, key)| [certificate, b"\n".to_vec(), key].concat());
        let token = user.token.filter(|token| !token.is_empty());
        let token_file = user.token_file.filter(|file| !file.as_os_str().is_empty());
        let token = match (&token, &token_file) {
            (_, Some(file)) => Token::File(folder.join(file)),
            (Some(token), None) => Token::Text(
                bearer(token).ok_or_else(|| Error::new(format!("{shown} has a token that is no header")))?,
            ),
            (None, None) => Token::None,
        };
        let trusts_all = cluster.insecure_skip_tls_verify.unwrap_or_default();
        Ok(Self {
            server: parse(&cluster.server.unwrap_or_default())?,
            authorities,
            trusts_all,
            identity,
            token,
        })
    }

    fn client(&self, timeout: DurationText, max_bytes: u64, pings: Pings) -> Result<http::Client, Error> {
        let mut builder = http::builder()
            .http2_keep_alive_interval(pings.after)
            .http2_keep_alive_timeout(pings.timeout)
            .http2_keep_alive_while_idle(true);
        if let Some(pem) = &self.authorities {
            builder = builder
                .tls_certs_only(http::certificates(pem, "the file of authorities of the Kubernetes API")?);
        }
        if self.trusts_all {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some(pem) = &self.identity {
            let identity = Identity::from_pem(pem)
                .map_err(|error| Error::because("the client certificate for the Kubernetes API", error))?;
            builder = builder.identity(identity);
        }
        http::Client::of(builder, timeout, max_bytes)
    }
}

impl Kubeconfig {
    /// The cluster and the user of a context.
    fn chosen(self, context: Option<&str>) -> Result<(Cluster, User), String> {
        let name = context.or(self.current_context.as_deref()).unwrap_or_default();
        if name.is_empty() {
            return Err("it has no current-context; set context".to_owned());
        }
        let context = self.contexts.into_iter().flatten().find(|known| known.name == name);
        let context = context.and_then(|known| known.context);
        let context = context.ok_or_else(|| format!("it has no context {name:?}"))?;
        let name = context.cluster.unwrap_or_default();
        let cluster = self.clusters.into_iter().flatten().find(|known| known.name == name);
        let cluster = cluster.and_then(|known| known.cluster);
        let cluster = cluster.ok_or_else(|| format!("it has no cluster {name:?}"))?;
        refuse_others("cluster", &name, &cluster.others)?;
        let Some(name) = context.user.filter(|name| !name.is_empty()) else {
            return Ok((cluster, User::default()));
        };
        let user = self.users.into_iter().flatten().find(|known| known.name == name);
        let user = user.ok_or_else(|| format!("it has no user {name:?}"))?.user.unwrap_or_default();
        refuse_others("user", &name, &user.others)?;
        Ok((cluster, user))
    }
}

/// Refuses members that deltaq does not know. Without them, a connection could go to another server, or have another
/// identity.
fn refuse_others(of: &str, name: &str, others: &BTreeMap<String, Value>) -> Result<(), String> {
    let is_set = |(member, value): &(&String, &Value)| {
        !NO_CONNECTION.contains(&member.as_str()) && !value.is_null() && value.as_str() != Some("")
    };
    let Some((member, _)) = others.iter().find(is_set) else { return Ok(()) };
    let advice = match of {
        "user" => "; give the user a token, tokenFile or client-certificate",
        _ => "",
    };
    Err(format!("the {of} {name:?} has {member}, which deltaq does not support{advice}"))
}

/// The content of a file that a kubeconfig names, or the base64 content in the kubeconfig itself.
fn contents(folder: &Path, file: Option<&Path>, data: Option<&str>) -> Result<Option<Vec<u8>>, Error> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let data: String = data.split_ascii_whitespace().collect();
        let decoded = BASE64.decode(data);
        return decoded
            .map(Some)
            .map_err(|_| Error::new("a certificate or key of the kubeconfig is not base64"));
    }
    file.filter(|file| !file.as_os_str().is_empty()).map(|file| read(&folder.join(file))).transpose()
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::because(format!("can't read {}", path.display()), error))
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let token = Some(token.trim()).filter(|token| !token.is_empty())?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn parse(server: &str) -> Result<Url, Error> {
    let url =
        Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| Error::new(format!("{server:?} is not the URL of a Kubernetes API")))
}

/// Host and port of the Kubernetes API, as a pod has them.
#[expect(
    clippy::disallowed_methods,
    reason = "Kubernetes gives them to every program of a pod; they are no settings"
)]
fn kubernetes_service() -> Option<(String, String)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT"))
}

#[cfg(test)]
mod tests;
