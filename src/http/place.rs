//! The parts of a path of the Kubernetes API.

use percent_encoding::percent_decode_str;

/// What a path names: an API group, a resource of it, or an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct Place {
    pub(in crate::http) group: String,
    pub(in crate::http) version: String,
    pub(in crate::http) namespace: Option<String>,
    /// The plural name of the resource.
    pub(in crate::http) plural: Option<String>,
    pub(in crate::http) name: Option<String>,
}

impl Place {
    /// The parts of a path; `None` if it is no path of the Kubernetes API.
    pub(in crate::http) fn of(path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let has_no_resource = matches!(path, "/version" | "/api" | "/apis")
            || path.starts_with("/api/")
            || path.starts_with("/openapi/v");
        if has_no_resource {
            return Some(Self::default());
        }
        let rest = path.strip_prefix("/apis/")?;
        let mut parts = rest.split('/').map(decoded);
        let mut place = Self {
            group: parts.next().unwrap_or_default(),
            version: parts.next().unwrap_or_default(),
            ..Self::default()
        };
        let parts: Vec<String> = parts.collect();
        match &*parts {
            [word, namespace, plural, name @ ..] if word == "namespaces" => {
                place.namespace = Some(namespace.clone());
                place.plural = Some(plural.clone());
                place.name = name.first().cloned();
            }
            [plural, name @ ..] => {
                place.plural = Some(plural.clone());
                place.name = name.first().cloned();
            }
            [] => {}
        }
        Some(place)
    }

    /// The resource, such as `prices.shop.example`.
    pub(in crate::http) fn resource(&self) -> String {
        format!("{}.{}", self.plural.as_deref().unwrap_or_default(), self.group)
    }
}

/// Whether a request is a watch. The API server reads any value but `0` and `false` as true.
pub(in crate::http) fn is_watch(query: Option<&str>) -> bool {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        name == "watch" && !matches!(value, "0" | "false")
    })
}

pub(in crate::http) fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_group_a_resource_or_an_object() {
        let read = |path: &str| {
            let place = Place::of(path)?;
            let parts = [place.namespace, place.plural, place.name].map(Option::unwrap_or_default);
            Some(format!("{} {} {}", place.group, place.version, parts.join(" ")))
        };
        for (path, expected) in [
            ("/apis/shop.example/v1/prices", "shop.example v1  prices "),
            ("/apis/shop.example/v1/prices/a%20b", "shop.example v1  prices a b"),
            ("/apis/shop.example/v1/namespaces/shop/prices", "shop.example v1 shop prices "),
            ("/apis/shop.example/v1/namespaces/shop/prices/apple", "shop.example v1 shop prices apple"),
            ("/apis/shop.example", "shop.example    "),
            ("/apis", "    "),
            ("/apis/", "    "),
            ("/apis/shop.example/v1/prices/", "shop.example v1  prices "),
        ] {
            assert_eq!(read(path).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(read("/v1/queues/prices"), None);
        assert_eq!(read("/apisx/shop.example"), None);
    }
}
