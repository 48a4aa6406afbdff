//! How to reach a Kubernetes API: a kubeconfig, or the service account of a pod.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Identity, Url};
use serde::Deserialize;

use super::super::{Error, http};
use crate::settings;

/// The files of the service account of a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A server with the credentials for it.
#[derive(Debug)]
pub(super) struct Access {
    server: Url,
    http: http::Client,
    token: Token,
    max_bytes: u64,
}

/// Where the token is.
#[derive(Clone)]
enum Token {
    None,
    Text(HeaderValue),
    /// A file that is read for each request, because it is replaced from time to time.
    File(PathBuf),
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A kubeconfig. Names with `-` are those of its format.
#[derive(Debug, Deserialize)]
struct Kubeconfig {
    #[serde(default, rename = "current-context")]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
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
    exec: Option<serde_json::Value>,
    username: Option<String>,
}

impl Access {
    pub(super) fn new(settings: &settings::Kubernetes, source: &settings::Source) -> Result<Self, Error> {
        match &settings.kubeconfig {
            Some(path) => Self::of_kubeconfig(path, settings.context.as_deref(), source),
            None => Self::of_pod(source),
        }
    }

    pub(super) const fn server(&self) -> &Url {
        &self.server
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
        let token = match &self.token {
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

    /// The access of a pod: the variables and files that Kubernetes gives it.
    fn of_pod(source: &settings::Source) -> Result<Self, Error> {
        let (host, port) = kubernetes_service()
            .ok_or_else(|| Error::new("outside of a pod the setting kubeconfig is required"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let folder = Path::new(SERVICE_ACCOUNT);
        let builder = http::builder().tls_certs_only(http::authorities(&folder.join("ca.crt"))?);
        let server = parse(&format!("https://{host}:{port}"))?;
        Self::build(server, builder, Token::File(folder.join("token")), source)
    }

    fn of_kubeconfig(path: &Path, context: Option<&str>, source: &settings::Source) -> Result<Self, Error> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::because(format!("can't read {shown} (kubeconfig)"), error))?;
        // The error of the parser may show a part of the file.
        let kubeconfig: Kubeconfig = serde_saphyr::from_str(&text)
            .map_err(|_| Error::new(format!("{shown} is not a kubeconfig in YAML")))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (cluster, user) =
            kubeconfig.chosen(context).map_err(|why| Error::new(format!("{shown}: {why}")))?;
        let mut builder = http::builder();
        let authority = contents(
            folder,
            cluster.certificate_authority.as_deref(),
            cluster.certificate_authority_data.as_deref(),
        )?;
        if let Some(pem) = authority {
            builder = builder.tls_certs_only(http::certificates(&pem, &format!("the authority of {shown}"))?);
        }
        if cluster.insecure_skip_tls_verify {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        let certificate =
            contents(folder, user.client_certificate.as_deref(), user.client_certificate_data.as_deref())?;
        let key = contents(folder, user.client_key.as_deref(), user.client_key_data.as_deref())?;
        if let Some((certificate, key)) = certificate.zip(key) {
            let pem = [certificate, b"\n".to_vec(), key].concat();
            let identity = Identity::from_pem(&pem)
                .map_err(|error| Error::because(format!("the client certificate of {shown}"), error))?;
            builder = builder.identity(identity);
        }
        let token = match (&user.token, &user.token_file) {
            (_, Some(file)) => Token::File(folder.join(file)),
            (Some(token), None) => Token::Text(
                bearer(token).ok_or_else(|| Error::new(format!("{shown} has a token that is no header")))?,
            ),
            (None, None) => Token::None,
        };
        Self::build(parse(&cluster.server)?, builder, token, source)
    }

    fn build(
        server: Url,
        builder: reqwest::ClientBuilder,
        token: Token,
        source: &settings::Source,
    ) -> Result<Self, Error> {
        let http = http::Client::of(builder, source.timeout, source.max_bytes)?;
        Ok(Self { server, http, token, max_bytes: source.max_bytes })
    }
}

impl Kubeconfig {
    /// The cluster and the user of a context.
    fn chosen(self, context: Option<&str>) -> Result<(Cluster, User), String> {
        let name = context.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err("it has no current-context; set context".to_owned());
        }
        let context = self.contexts.iter().find(|known| known.name == name);
        let context = &context.ok_or_else(|| format!("it has no context {name:?}"))?.context;
        let cluster = self.clusters.into_iter().find(|known| known.name == context.cluster);
        let cluster = cluster.ok_or_else(|| format!("it has no cluster {:?}", context.cluster))?.cluster;
        let user = self.users.into_iter().find(|known| known.name == context.user);
        let user = user.ok_or_else(|| format!("it has no user {:?}", context.user))?.user.unwrap_or_default();
        if user.exec.is_some() || user.username.is_some() {
            let why = "has exec or username, which deltaq does not use; give it a token, tokenFile or client certificate";
            return Err(format!("the user {:?} {why}", context.user));
        }
        Ok((cluster, user))
    }
}

/// The content of a file of a kubeconfig, or the content that stands there in base64.
fn contents(folder: &Path, file: Option<&Path>, data: Option<&str>) -> Result<Option<Vec<u8>>, Error> {
    if let Some(data) = data {
        let decoded = BASE64.decode(data.trim());
        return decoded
            .map(Some)
            .map_err(|_| Error::new("a certificate or key of the kubeconfig is not base64"));
    }
    let Some(path) = file.map(|file| folder.join(file)) else { return Ok(None) };
    let read = std::fs::read(&path);
    read.map(Some).map_err(|error| Error::because(format!("can't read {}", path.display()), error))
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
mod tests {
    use super::*;

    fn chosen(text: &str, context: Option<&str>) -> Result<(Cluster, User), String> {
        serde_saphyr::from_str::<Kubeconfig>(text).unwrap().chosen(context)
    }

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: main
preferences: {}
clusters:
- name: east
  cluster: {server: 'https://east:6443', certificate-authority: ca.crt}
contexts:
- {name: main, context: {cluster: east, user: robot, namespace: shop}}
- {name: bare, context: {cluster: east, user: human}}
users:
- name: robot
  user:
    token: abc
- name: human
  user:
    exec: {command: login, apiVersion: client.authentication.k8s.io/v1}
";

    #[test]
    fn a_context_leads_to_a_cluster_and_a_user() {
        let (cluster, user) = chosen(FILE, None).unwrap();
        assert_eq!((cluster.server.as_str(), user.token.as_deref()), ("https://east:6443", Some("abc")));
        assert_eq!(cluster.certificate_authority.as_deref(), Some(Path::new("ca.crt")));
        assert!(chosen(FILE, Some("bare")).unwrap_err().contains("which deltaq does not use"));
        assert_eq!(chosen(FILE, Some("west")).unwrap_err(), "it has no context \"west\"");
        assert!(chosen("{}", None).unwrap_err().contains("current-context"));
    }
}
