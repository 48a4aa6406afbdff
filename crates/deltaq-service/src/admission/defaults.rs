//! Collects the defaults of a schema and fills them in.
//!
//! Defaults are taken from subschemas that certainly apply to a value: `properties`, `additionalProperties` (without
//! `patternProperties`), `items`, `prefixItems`, and a `$ref` into the schema itself. Subschemas that may or may not
//! apply, such as those of `anyOf` or `if`, are ignored. A default only fills in an absent member. The subschema of
//! the member then applies to the default.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use deltaq_engine::limits::JSON_DEPTH_MAX;
use smallvec::SmallVec;

use super::document::{Document, Kind, Member};
use super::limits::{DEFAULTS_BYTES_MAX, IN_PLACE_DEPTH_MAX};
use super::places::{Id, Places, resolve};
use super::prune::Paths;

/// The limit that defaults would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// The maximum length.
    Bytes,
    /// The maximum depth.
    Depth,
}

/// The subschemas with defaults. The first is the whole schema.
#[derive(Debug, Default)]
pub(super) struct Defaults(Vec<Node>);

/// The subschemas that apply to a value: one subschema and the targets of its references.
type Layers = SmallVec<[Id; 2]>;

#[derive(Debug, Default)]
struct Node {
    /// The subschema itself and the targets of its `$ref`, in order.
    layers: Layers,
    /// The subschema's own default, or else the default of the subschema that it refers to.
    default: Option<Arc<str>>,
    properties: Vec<Property>,
    by_name: HashMap<Box<str>, usize>,
    others: Option<Id>,
    first_elements: Vec<Option<Id>>,
    elements: Option<Id>,
    refers_to: Option<Id>,
}

#[derive(Debug)]
struct Property {
    name: Box<str>,
    /// The name as the schema writes it, with quotes.
    quoted: Box<str>,
    /// `None` if the subschema has no effect, like `true`.
    schema: Option<Id>,
}

impl Defaults {
    /// The defaults of a schema, which is a whole document; `None` if it has none.
    ///
    /// # Errors
    /// [`Overflow`] if the defaults are endless.
    pub(super) fn of(schema: &Document<'_>) -> Result<Option<Self>, Overflow> {
        let mut builder = Builder { places: Places::default(), nodes: Vec::new() };
        builder.id(schema, schema);
        while let Some((id, place, root)) = builder.places.next() {
            let node = builder.node(place, root);
            builder.nodes.resize_with(builder.places.len(), Node::default);
            if let Some(slot) = builder.nodes.get_mut(id) {
                *slot = node;
            }
        }
        let defaults = Self(builder.nodes).layered();
        if defaults.0.iter().all(|node| node.default.is_none()) {
            return Ok(None);
        }
        defaults.check().map(|()| Some(defaults))
    }

    /// Records for each node the final targets of its references. [`Cost`](super::cost::Cost) has checked that chains
    /// of references are short, except for references that the two modules resolve differently.
    fn layered(mut self) -> Self {
        let layers = |start: Id| {
            let mut layers = Layers::new();
            let mut next = Some(start);
            while let Some(id) = next.filter(|id| !layers.contains(id) && layers.len() < IN_PLACE_DEPTH_MAX) {
                layers.push(id);
                next = self.0.get(id).and_then(|node| node.refers_to);
            }
            layers
        };
        let all: Vec<Layers> = (0..self.0.len()).map(layers).collect();
        let default = |layers: &Layers| {
            layers.iter().find_map(|id| self.0.get(*id).and_then(|node| node.default.clone()))
        };
        let defaults: Vec<_> = all.iter().map(default).collect();
        for ((node, layers), default) in self.0.iter_mut().zip(all).zip(defaults) {
            (node.layers, node.default) = (layers, default);
        }
        self
    }

    /// Checks that the defaults are finite, by filling in each default alone, once for each reference to it, and an
    /// empty object.
    ///
    /// If several subschemas apply to a value, the default of one may be continued by another. Defaults that are
    /// endless only in this way are not detected here. The limit stops them when an object is filled.
    fn check(&self) -> Result<(), Overflow> {
        let mut room = DEFAULTS_BYTES_MAX;
        for node in &self.0 {
            for text in node.default.as_deref().into_iter().chain(["{}"]) {
                room = room.checked_sub(text.len()).ok_or(Overflow::Bytes)?;
                if let Ok(mut document) = Document::parse(text) {
                    self.fill_value(&mut document, &node.layers, &Paths::default(), 1, &mut room)?;
                }
            }
        }
        Ok(())
    }

    /// Fills in absent members that are not pruned, using at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`Overflow`] if that is not enough, or if the value would be nested too deeply.
    pub(super) fn fill<'d>(
        &'d self,
        document: &mut Document<'d>,
        pruned: &Paths<'_>,
        bytes_max: usize,
    ) -> Result<(), Overflow> {
        let Some(whole) = self.0.first() else { return Ok(()) };
        let mut room = bytes_max;
        self.fill_value(document, &whole.layers, pruned, 1, &mut room)
    }

    fn fill_value<'d>(
        &'d self,
        document: &mut Document<'d>,
        layers: &[Id],
        pruned: &Paths<'_>,
        depth: usize,
        room: &mut usize,
    ) -> Result<(), Overflow> {
        if layers.is_empty() || matches!(document.kind, Kind::Scalar) {
            return Ok(());
        }
        if depth > JSON_DEPTH_MAX {
            return Err(Overflow::Depth);
        }
        let mut changed = false;
        match &mut document.kind {
            Kind::Object(members) => {
                for node in self.nodes(layers) {
                    changed |= self.add_absent(node, members, pruned, room)?;
                }
                for member in members {
                    let below = self.below(layers, |node| node.of_member(&member.name));
                    let pruned = pruned.below(&member.name);
                    self.fill_value(&mut member.value, &below, &pruned, depth + 1, room)?;
                    changed |= member.value.is_changed();
                }
            }
            Kind::Array(elements) => {
                for (index, element) in elements.iter_mut().enumerate() {
                    let below = self.below(layers, |node| node.of_element(index));
                    let pruned = pruned.below_element(index);
                    self.fill_value(element, &below, &pruned, depth + 1, room)?;
                    changed |= element.is_changed();
                }
            }
            Kind::Scalar => {}
        }
        if changed {
            document.set_changed();
        }
        Ok(())
    }

    /// Adds the absent members for which a subschema has defaults.
    fn add_absent<'d>(
        &'d self,
        node: &'d Node,
        members: &mut Vec<Member<'d>>,
        pruned: &Paths<'_>,
        room: &mut usize,
    ) -> Result<bool, Overflow> {
        if node.properties.is_empty() {
            return Ok(false);
        }
        let mut is_there = vec![false; node.properties.len()];
        for member in members.iter() {
            let index = node.by_name.get(&*member.name);
            if let Some(slot) = index.and_then(|index| is_there.get_mut(*index)) {
                *slot = true;
            }
        }
        let mut added = false;
        for (property, is_there) in node.properties.iter().zip(is_there) {
            let schema = property.schema.and_then(|id| self.0.get(id));
            let Some(default) = schema.and_then(|schema| schema.default.as_deref()) else { continue };
            if is_there || pruned.end_at(&property.name) {
                continue;
            }
            let Ok(mut value) = Document::parse(default) else { continue };
            let bytes = property.quoted.len() + default.len() + ":,".len();
            *room = room.checked_sub(bytes).ok_or(Overflow::Bytes)?;
            value.remove(&pruned.below(&property.name));
            let name = Cow::Borrowed(&*property.name);
            members.push(Member { name, quoted: &property.quoted, value });
            added = true;
        }
        Ok(added)
    }

    fn nodes(&self, layers: &[Id]) -> impl Iterator<Item = &Node> {
        layers.iter().filter_map(|id| self.0.get(*id))
    }

    /// The subschemas for a part of a value. `pick` finds them in each of the layers for the whole value.
    fn below(&self, layers: &[Id], pick: impl Fn(&Node) -> Option<Id>) -> Layers {
        let mut below = Layers::new();
        for id in self.nodes(layers).filter_map(pick) {
            for layer in self.0.get(id).into_iter().flat_map(|node| &node.layers) {
                if !below.contains(layer) {
                    below.push(*layer);
                }
            }
        }
        below
    }
}

impl Node {
    fn of_member(&self, name: &str) -> Option<Id> {
        match self.by_name.get(name) {
            Some(index) => self.properties.get(*index)?.schema,
            None => self.others,
        }
    }

    fn of_element(&self, index: usize) -> Option<Id> {
        self.first_elements.get(index).copied().unwrap_or(self.elements)
    }
}

/// Finds the subschemas.
struct Builder<'s, 'd> {
    places: Places<'s, 'd>,
    nodes: Vec<Node>,
}

impl<'s, 'd> Builder<'s, 'd> {
    fn id(&mut self, place: &'s Document<'d>, root: &'s Document<'d>) -> Option<Id> {
        self.places.id(place, root)
    }

    fn node(&mut self, place: &'s Document<'d>, root: &'s Document<'d>) -> Node {
        let mut node =
            Node { default: place.member("default").map(|default| default.text().into()), ..Node::default() };
        if let Some(reference) = place.member("$ref").and_then(Document::string) {
            node.refers_to = resolve(root, &reference).and_then(|(place, root)| self.id(place, root));
        }
        for member in place.member("properties").and_then(Document::members).into_iter().flatten() {
            let schema = self.id(&member.value, root);
            node.by_name.insert((*member.name).into(), node.properties.len());
            let (name, quoted) = ((*member.name).into(), member.quoted.into());
            node.properties.push(Property { name, quoted, schema });
        }
        if place.member("patternProperties").is_none() {
            node.others = place.member("additionalProperties").and_then(|others| self.id(others, root));
        }
        // The tuples of older dialects are today's `prefixItems`, and `additionalItems` is today's `items`.
        let items = place.member("items");
        let is_tuple = items.is_some_and(|items| items.elements().is_some());
        let first = if is_tuple { items } else { place.member("prefixItems") };
        let first = first.and_then(Document::elements).into_iter().flatten();
        node.first_elements = first.map(|element| self.id(element, root)).collect();
        let rest = if is_tuple { place.member("additionalItems") } else { items };
        node.elements = rest.and_then(|rest| self.id(rest, root));
        node
    }
}
