//! The cost of checking an object, computed from the text of the schema before it is compiled.
//!
//! A subschema can apply other subschemas to the same value (`allOf`, `anyOf`, `oneOf`, `if`, `not`, references), and
//! those can do the same. So a few lines of schema can require more evaluations than a computer performs in a year.
//! This module computes the product of the evaluations. A reference by name counts for all targets with that name.
//!
//! The result does not limit the time for a whole object, because a recursive schema is applied again on each level.

use std::collections::HashMap;

use deltaq_engine::limits::JSON_DEPTH_MAX;

use super::Error;
use super::document::{Document, Kind};
use super::limits::{IN_PLACE_DEPTH_MAX, IN_PLACE_EVALUATIONS_MAX, PATTERNS_MAX, SUBSCHEMAS_MAX};
use super::places::{Id, Places, resolve, root_of};

/// The work that a schema requires for each value.
#[derive(Debug)]
pub(super) struct Cost {
    /// For objects of each depth, the maximum number of evaluations of one of their values. Each evaluation may find a fault.
    by_depth: Vec<u64>,
    /// Whether the schema has alternatives. The report explains why each alternative does not hold.
    has_alternatives: bool,
    /// Number of regular expressions.
    pub(super) patterns: usize,
}

/// The default is the unknown cost, which may be arbitrarily high.
impl Default for Cost {
    fn default() -> Self {
        Self { by_depth: Vec::new(), has_alternatives: true, patterns: 0 }
    }
}

#[derive(Debug, Default)]
struct Subschema {
    /// The subschemas that this subschema applies to the same value.
    in_place: Vec<Id>,
    /// How often it applies them. `unevaluatedProperties` and `unevaluatedItems` evaluate them again.
    times: u64,
    members: Below,
    elements: Below,
}

/// Subschemas for the parts of a value.
#[derive(Debug, Default)]
struct Below {
    /// One of the subschemas applies to each part.
    either: Vec<Id>,
    /// All subschemas apply to each part.
    each: Vec<Id>,
}

impl Cost {
    /// The cost of a schema, which is a whole document.
    ///
    /// # Errors
    /// The limit that the schema exceeds.
    pub(super) fn of(schema: &Document<'_>) -> Result<Self, Error> {
        let mut graph = Graph::default();
        graph.note_names(schema);
        graph.id(schema, schema);
        while let Some((id, place, root)) = graph.places.next() {
            let subschema = graph.subschema(place, root);
            graph.edges += subschema.in_place.len();
            graph.all.resize_with(graph.places.len(), Subschema::default);
            if let Some(slot) = graph.all.get_mut(id) {
                *slot = subschema;
            }
            if graph.all.len() > SUBSCHEMAS_MAX || graph.edges > EDGES_MAX {
                return Err(Error::TooManySubschemas);
            }
        }
        if graph.patterns > PATTERNS_MAX {
            return Err(Error::TooManyPatterns { patterns: graph.patterns });
        }
        let order = Order::of(&graph.all)?;
        let by_depth = by_depth(&graph.all, &order.ids)?;
        Ok(Self { by_depth, has_alternatives: graph.has_alternatives, patterns: graph.patterns })
    }

    /// Maximum number of faults in an object.
    pub(super) fn faults(&self, document: &Document<'_>) -> u64 {
        let (mut values, mut deepest) = (0_u64, 0);
        let mut todo = vec![(document, 0)];
        while let Some((value, depth)) = todo.pop() {
            values += 1;
            deepest = deepest.max(depth);
            match &value.kind {
                Kind::Object(members) => todo.extend(members.iter().map(|member| (&member.value, depth + 1))),
                Kind::Array(elements) => todo.extend(elements.iter().map(|element| (element, depth + 1))),
                Kind::Scalar => {}
            }
        }
        values.saturating_mul(self.by_depth.get(deepest).copied().unwrap_or(u64::MAX))
    }

    /// Whether the schema has `anyOf` or `oneOf`.
    pub(super) fn has_alternatives(&self) -> bool {
        self.has_alternatives
    }
}

/// The name of all possible targets of `$recursiveRef`; no anchor can have this name.
const RECURSIVE: &str = "#recursive";
/// Maximum number of references between subschemas, so that names with many targets don't fill the memory.
const EDGES_MAX: usize = 10 * SUBSCHEMAS_MAX;

/// The subschemas of a schema. The first is the whole schema.
#[derive(Default)]
struct Graph<'s, 'd> {
    all: Vec<Subschema>,
    places: Places<'s, 'd>,
    /// The subschemas with each anchor and `$id`, and with the last part of each `$id`.
    names: HashMap<String, Vec<&'s Document<'d>>>,
    edges: usize,
    patterns: usize,
    has_alternatives: bool,
}

impl<'s, 'd> Graph<'s, 'd> {
    fn note_names(&mut self, schema: &'s Document<'d>) {
        let mut todo = vec![schema];
        while let Some(place) = todo.pop() {
            match &place.kind {
                Kind::Object(members) => todo.extend(members.iter().map(|member| &member.value)),
                Kind::Array(elements) => todo.extend(elements),
                Kind::Scalar => continue,
            }
            let names = ["$anchor", "$dynamicAnchor", "$id", "id"].into_iter();
            for name in names.filter_map(|word| place.member(word)?.string()) {
                let (whole, last) = (name.trim_end_matches('#'), last_part(&name));
                for name in [whole].into_iter().chain((last != whole).then_some(last)) {
                    self.names.entry(name.to_owned()).or_default().push(place);
                }
            }
            if place.member("$recursiveAnchor").is_some_and(|is| is.text() == "true") {
                self.names.entry(RECURSIVE.to_owned()).or_default().push(place);
            }
        }
    }

    fn id(&mut self, place: &'s Document<'d>, root: &'s Document<'d>) -> Option<Id> {
        self.places.id(place, root)
    }

    fn subschema(&mut self, place: &'s Document<'d>, root: &'s Document<'d>) -> Subschema {
        let mut found = Subschema { times: 1, ..Subschema::default() };
        for member in place.members().into_iter().flatten() {
            let value = &member.value;
            match &*member.name {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    let is_recursive = &*member.name == "$recursiveRef";
                    let targets =
                        value.string().map(|reference| self.targets(root, &reference, is_recursive));
                    let targets = targets.into_iter().flatten();
                    found.in_place.extend(targets.filter_map(|(place, root)| self.id(place, root)));
                }
                "not" | "if" | "then" | "else" => found.in_place.extend(self.id(value, root)),
                "allOf" | "dependentSchemas" | "dependencies" => {
                    found.in_place.extend(self.parts(value, root));
                }
                "anyOf" | "oneOf" => {
                    self.has_alternatives = true;
                    found.in_place.extend(self.parts(value, root));
                }
                "properties" => found.members.either.extend(self.parts(value, root)),
                "additionalProperties" => found.members.either.extend(self.id(value, root)),
                "patternProperties" => {
                    self.patterns += value.members().map_or(0, <[_]>::len);
                    found.members.each.extend(self.parts(value, root));
                }
                "propertyNames" => found.members.each.extend(self.id(value, root)),
                "unevaluatedProperties" => {
                    found.times += 1;
                    found.members.each.extend(self.id(value, root));
                }
                "items" if value.members().is_some() => found.elements.either.extend(self.id(value, root)),
                "items" | "prefixItems" => found.elements.either.extend(self.parts(value, root)),
                "additionalItems" => found.elements.either.extend(self.id(value, root)),
                "contains" => found.elements.each.extend(self.id(value, root)),
                "unevaluatedItems" => {
                    found.times += 1;
                    found.elements.each.extend(self.id(value, root));
                }
                "pattern" => self.patterns += 1,
                // These apply only by reference.
                "$defs" | "definitions" => drop(self.parts(value, root)),
                _ => {}
            }
        }
        found
    }

    /// The subschemas that a member contains as a list or by name.
    fn parts(&mut self, value: &'s Document<'d>, root: &'s Document<'d>) -> Vec<Id> {
        match &value.kind {
            Kind::Object(members) => {
                members.iter().filter_map(|member| self.id(&member.value, root)).collect()
            }
            Kind::Array(elements) => elements.iter().filter_map(|element| self.id(element, root)).collect(),
            Kind::Scalar => Vec::new(),
        }
    }

    /// The possible targets of a reference, each with the schema that resolves references there.
    fn targets(
        &self,
        root: &'s Document<'d>,
        reference: &str,
        is_recursive: bool,
    ) -> Vec<(&'s Document<'d>, &'s Document<'d>)> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let named = |name: &str| {
            let places = self.names.get(name).or_else(|| self.names.get(last_part(name)));
            places.into_iter().flatten().copied()
        };
        let roots: Vec<_> = if base.is_empty() { vec![root] } else { named(base).collect() };
        let mut found: Vec<_> =
            roots.into_iter().filter_map(|root| resolve(root, &format!("#{fragment}"))).collect();
        let name = if is_recursive { RECURSIVE } else { fragment };
        if !name.is_empty() && !name.starts_with('/') {
            let is_new = |place: &&Document<'_>| !found.iter().any(|(known, _)| std::ptr::eq(*known, *place));
            let more: Vec<_> = named(name).filter(is_new).collect();
            found.extend(more.into_iter().map(|place| (place, root_of(place, root))));
        }
        found
    }
}

/// The part of a reference after its last slash or hash.
fn last_part(reference: &str) -> &str {
    reference.rsplit(['/', '#']).find(|part| !part.is_empty()).unwrap_or_default()
}

/// The subschemas in an order in which each one comes after those that it applies in place.
struct Order {
    ids: Vec<Id>,
    /// The length of the longest chain from each subschema; `None` while it is being computed.
    heights: HashMap<Id, Option<usize>>,
}

impl Order {
    fn of(all: &[Subschema]) -> Result<Self, Error> {
        let mut order = Self { ids: Vec::with_capacity(all.len()), heights: HashMap::new() };
        for id in 0..all.len() {
            order.visit(all, id, 1)?;
        }
        Ok(order)
    }

    fn visit(&mut self, all: &[Subschema], id: Id, depth: usize) -> Result<usize, Error> {
        match self.heights.get(&id) {
            Some(Some(height)) => return Ok(*height),
            Some(None) => return Err(Error::Circle),
            None if depth > IN_PLACE_DEPTH_MAX => return Err(Error::ChainTooLong),
            None => drop(self.heights.insert(id, None)),
        }
        let mut height = 1;
        for next in all.get(id).into_iter().flat_map(|subschema| &subschema.in_place) {
            height = height.max(self.visit(all, *next, depth + 1)? + 1);
        }
        if height > IN_PLACE_DEPTH_MAX {
            return Err(Error::ChainTooLong);
        }
        self.heights.insert(id, Some(height));
        self.ids.push(id);
        Ok(height)
    }
}

/// For each depth of a value, the maximum number of evaluations by the whole schema on the way to one of its parts.
fn by_depth(all: &[Subschema], order: &[Id]) -> Result<Vec<u64>, Error> {
    let mut below = vec![0_u64; all.len()];
    let mut by_depth = Vec::with_capacity(JSON_DEPTH_MAX + 1);
    for depth in 0..=JSON_DEPTH_MAX {
        // One count for an object, and one for an array.
        let mut now = vec![[0_u64; 2]; all.len()];
        for id in order {
            let Some(subschema) = all.get(*id) else { continue };
            let mut costs = [1_u64; 2];
            for (kind, parts) in [&subschema.members, &subschema.elements].into_iter().enumerate() {
                let of = |id: &Id| now.get(*id).and_then(|costs| costs.get(kind)).copied().unwrap_or(0);
                let of_part = |id: &Id| below.get(*id).copied().unwrap_or(0);
                let in_place = subschema.in_place.iter().map(of).fold(0, u64::saturating_add);
                let either = parts.either.iter().map(of_part).max().unwrap_or(0);
                let each = parts.each.iter().map(of_part).fold(either, u64::saturating_add);
                let cost = subschema.times.saturating_mul(in_place).saturating_add(each);
                if let Some(slot) = costs.get_mut(kind) {
                    *slot = slot.saturating_add(cost);
                }
            }
            if let Some(slot) = now.get_mut(*id) {
                *slot = costs;
            }
        }
        below = now.into_iter().map(|[object, array]| object.max(array)).collect();
        if depth == 0 && below.iter().any(|cost| *cost > IN_PLACE_EVALUATIONS_MAX as u64) {
            return Err(Error::TooManyEvaluations);
        }
        by_depth.push(below.first().copied().unwrap_or(0));
    }
    Ok(by_depth)
}
