//! The macros: one pass over the elements of a list or the entries of a map.

use super::ast::{Macro, MacroKind};
use super::evaluate::{Result, Run, stopped};
use super::values::{Key, Map, Value};

/// The result of a macro so far, element by element.
struct Fold<'r> {
    kind: MacroKind,
    stopped: Option<Value<'r>>,
    count: usize,
    items: Vec<Value<'r>>,
    keys: Vec<Value<'r>>,
    members: Vec<(Key<'r>, Value<'r>)>,
}

impl<'r> Fold<'r> {
    /// Remember an error or unknown: an unknown beats the first error.
    fn note(&mut self, value: Value<'r>) {
        if self.stopped.is_none() || matches!(value, Value::Unknown) {
            self.stopped = Some(value);
        }
    }

    /// Take the result for an element whose condition is true.
    fn add(&mut self, key: Key<'r>, element: Value<'r>, result: Value<'r>) {
        self.count += 1;
        match self.kind {
            MacroKind::TransformMap => self.members.push((key, result)),
            MacroKind::Filter | MacroKind::Map | MacroKind::TransformList => self.items.push(result),
            MacroKind::SortBy => {
                self.items.push(element);
                self.keys.push(result);
            }
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne | MacroKind::OptMap | MacroKind::OptFlatMap => {}
        }
    }
}

impl<'r> Run<'r> {
    pub(super) fn run_macro(&mut self, step: &'r Macro, over: Value<'r>) -> Result<Value<'r>> {
        let (items, keys, members) = (Vec::new(), Vec::new(), Vec::new());
        let mut fold = Fold { kind: step.kind, stopped: None, count: 0, items, keys, members };
        let takes_two = step.names.len() > 1;
        match over {
            Value::List(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let key = Key::Int(index as i64);
                    let first = if takes_two { key.value() } else { *element };
                    if let Some(decided) = self.visit(step, &mut fold, key, first, *element)? {
                        return Ok(decided);
                    }
                }
            }
            Value::Map(map) if step.kind != MacroKind::SortBy => {
                for (key, value) in map.entries {
                    if let Some(decided) = self.visit(step, &mut fold, *key, key.value(), *value)? {
                        return Ok(decided);
                    }
                }
            }
            _ => return Ok(self.no_overload(name(step.kind), &[over])),
        }
        if let Some(stopped) = fold.stopped {
            return Ok(stopped);
        }
        Ok(match step.kind {
            MacroKind::SortBy => self.sorted_by("sortBy", &fold.items, &fold.keys)?,
            MacroKind::OptMap | MacroKind::OptFlatMap => self.no_overload(name(step.kind), &[over]),
            MacroKind::All => Value::Bool(true),
            MacroKind::Exists => Value::Bool(false),
            MacroKind::ExistsOne => Value::Bool(fold.count == 1),
            MacroKind::TransformMap => {
                let entries = self.arena.alloc_slice_copy(&fold.members);
                Value::Map(self.arena.alloc(Map::new(self.arena, entries)))
            }
            MacroKind::Filter | MacroKind::Map | MacroKind::TransformList => {
                Value::List(self.arena.alloc_slice_copy(&fold.items))
            }
        })
    }

    /// Visit an element; return the value of the macro if this element decides it.
    fn visit(
        &mut self,
        step: &'r Macro,
        fold: &mut Fold<'r>,
        key: Key<'r>,
        first: Value<'r>,
        second: Value<'r>,
    ) -> Result<Option<Value<'r>>> {
        self.charge(1)?;
        // One variable is the element of a list, the key of a map; two are index and element, key and value.
        self.locals[step.slot as usize] = first;
        if step.names.len() > 1 {
            self.locals[step.slot as usize + 1] = second;
        }
        let condition = step.condition.map_or(Ok(Value::Bool(true)), |condition| self.evaluate(condition))?;
        match condition {
            Value::Bool(truth) => {
                if (truth, step.kind) == (false, MacroKind::All) || (truth, step.kind) == (true, MacroKind::Exists) {
                    return Ok(Some(condition));
                }
                if !truth {
                    return Ok(None);
                }
            }
            value => {
                let value = stopped(value).unwrap_or_else(|| self.no_overload(name(step.kind), &[value]));
                fold.note(value);
                return Ok(None);
            }
        }
        // Without a result, the macro uses the element itself, unread: it may be a number beyond float64.
        let result = match step.result {
            None => first,
            Some(result) => {
                let result = self.evaluate(result)?;
                if let Some(stopped) = stopped(result) {
                    fold.note(stopped);
                    return Ok(None);
                }
                result
            }
        };
        fold.add(key, first, result);
        Ok(None)
    }
}

pub(super) fn name(kind: MacroKind) -> &'static str {
    match kind {
        MacroKind::All => "all",
        MacroKind::Exists => "exists",
        MacroKind::ExistsOne => "exists_one",
        MacroKind::Filter => "filter",
        MacroKind::Map => "map",
        MacroKind::TransformList => "transformList",
        MacroKind::TransformMap => "transformMap",
        MacroKind::SortBy => "sortBy",
        MacroKind::OptMap => "optMap",
        MacroKind::OptFlatMap => "optFlatMap",
    }
}
