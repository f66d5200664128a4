// SPDX-License-Identifier: Apache-2.0

//! The imports of a source file (each path that starts at `crate` or at `super`), and the types that it declares.

use super::tokens::{Token, tokens};

/// The attribute of items that only tests have.
const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// A file with its imports and types outside tests.
pub(super) struct SourceFile {
    /// Below the root of the repository.
    pub(super) path: String,
    /// The path of the module in the crate; empty for `lib.rs` and `main.rs`.
    pub(super) module: Vec<String>,
    pub(super) imports: Vec<Import>,
    /// The names of structs, enums, traits, unions and aliases, without the associated types of traits and impls.
    pub(super) types: Vec<String>,
    /// The modules in other files that only tests have.
    pub(super) test_modules: Vec<Vec<String>>,
}

/// A path in the crate that a file names, in a `use` or elsewhere.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Import {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
}

impl SourceFile {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let module = module(path);
        let tokens = tokens(text);
        let mut walk = Walk {
            tokens: &tokens,
            at: 0,
            depth: 0,
            module: module.clone(),
            inline: Vec::new(),
            imports: Vec::new(),
            types: Vec::new(),
            test_modules: Vec::new(),
        };
        while walk.at < tokens.len() {
            walk.step();
        }
        Self {
            path: path.to_owned(),
            imports: walk.imports,
            types: walk.types,
            test_modules: walk.test_modules,
            module,
        }
    }

    /// Whether the file is one of these modules, or inside one.
    pub(super) fn is_in(&self, modules: &[&[String]]) -> bool {
        modules.iter().any(|module| self.module.starts_with(module))
    }
}

/// The modules in other files that only tests have, of all sources.
pub(super) fn test_modules(sources: &[SourceFile]) -> Vec<&[String]> {
    let modules = sources.iter().flat_map(|source| &source.test_modules);
    modules.map(Vec::as_slice).collect()
}

/// The module of a file by its path: `src/net/mod.rs` and `src/net.rs` are both `net`.
fn module(path: &str) -> Vec<String> {
    let path = super::layers::below_src(path).trim_end_matches(".rs");
    let mut module: Vec<_> = path.split('/').map(str::to_owned).collect();
    let is_parent = |last: &String| ["mod", "lib", "main"].contains(&last.as_str());
    if module.last().is_some_and(is_parent) {
        module.pop();
    }
    module
}

struct Walk<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    /// The number of open braces.
    depth: usize,
    /// Where the walk is, with the modules inside the file.
    module: Vec<String>,
    /// The depth outside each module inside the file.
    inline: Vec<usize>,
    imports: Vec<Import>,
    types: Vec<String>,
    test_modules: Vec<Vec<String>>,
}

impl<'a> Walk<'a> {
    fn text(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn step(&mut self) {
        match (self.text(0), self.text(1)) {
            ("#", "[") if self.is_cfg_test() => self.skip_item(),
            ("mod", _) if self.text(2) == "{" => self.enter(),
            ("crate", "::") => self.absolute(),
            ("super", "::") => self.relative(),
            ("struct" | "enum" | "trait" | "type" | "union", name)
                if name.starts_with(char::is_uppercase) =>
            {
                self.declare(name);
            }
            ("{", _) => {
                self.depth += 1;
                self.at += 1;
            }
            ("}", _) => self.close(),
            _ => self.at += 1,
        }
    }

    fn is_cfg_test(&self) -> bool {
        (0..CFG_TEST.len()).all(|ahead| self.text(ahead) == CFG_TEST[ahead])
    }

    /// A module inside the file begins; the next step counts its brace.
    fn enter(&mut self) {
        self.inline.push(self.depth);
        self.module.push(self.text(1).to_owned());
        self.at += 2;
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.inline.last() == Some(&self.depth) {
            self.inline.pop();
            self.module.pop();
        }
        self.at += 1;
    }

    /// Notes a type. A `type` in braces other than those of modules belongs to a trait, an impl or a function.
    fn declare(&mut self, name: &str) {
        let is_in_module = self.depth == self.inline.len();
        if is_in_module || self.text(0) != "type" {
            self.types.push(name.to_owned());
        }
        self.at += 2;
    }

    /// Skips the attribute and its item: up to a `;`, or the end of the first block.
    fn skip_item(&mut self) {
        self.at += CFG_TEST.len();
        let mut open = 0usize;
        while self.at < self.tokens.len() {
            if open == 0 && self.text(0) == "mod" && self.text(2) == ";" {
                let mut module = self.module.clone();
                module.push(self.text(1).to_owned());
                self.test_modules.push(module);
            }
            let sign = self.text(0);
            let (opens, closes) = (["{", "(", "["].contains(&sign), ["}", ")", "]"].contains(&sign));
            let is_end = (open == 0 && sign == ";") || (open == 1 && sign == "}");
            if open == 0 && closes {
                return;
            }
            open = open + usize::from(opens) - usize::from(closes);
            self.at += 1;
            if is_end {
                return;
            }
        }
    }

    /// `super::super::...`, from the module where the walk is.
    fn relative(&mut self) {
        let mut base = self.module.clone();
        while self.text(0) == "super" && self.text(1) == "::" {
            base.pop();
            self.at += 2;
        }
        self.tree(&base);
    }

    fn absolute(&mut self) {
        self.at += 2;
        self.tree(&[]);
    }

    /// Notes each path of a tree such as `a::{b, c::d}`. The walk is after the `::` before the tree.
    fn tree(&mut self, base: &[String]) {
        let Some(token) = self.tokens.get(self.at).copied() else {
            return;
        };
        if token.text == "{" {
            return self.branches(base);
        }
        let mut path = base.to_vec();
        if token.text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            self.at += 1;
            if token.text != "self" {
                path.push(token.text.to_owned());
            }
            if self.text(0) == "::" {
                self.at += 1;
                return self.tree(&path);
            }
        }
        self.imports.push(Import {
            line: token.line,
            path,
        });
    }

    fn branches(&mut self, base: &[String]) {
        self.at += 1;
        while self.at < self.tokens.len() && self.text(0) != "}" {
            self.tree(base);
            // A path may end with `as` and a name, or with `*`.
            while self.at < self.tokens.len() && ![",", "}"].contains(&self.text(0)) {
                self.at += 1;
            }
            if self.text(0) == "," {
                self.at += 1;
            }
        }
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(path: &str, text: &str) -> Vec<(usize, String)> {
        let imports = SourceFile::new(path, text).imports;
        imports
            .iter()
            .map(|import| (import.line, import.path.join("::")))
            .collect()
    }

    #[test]
    fn trees_and_expressions_are_imports() {
        let text =
            "use crate::net::{self, tls::Tls as T,\n  url::*};\nfn f() { crate::batch::make::<u8>(); }";
        let expected = [
            (1, "net".to_owned()),
            (1, "net::tls::Tls".to_owned()),
            (2, "net::url".to_owned()),
            (3, "batch::make".to_owned()),
        ];
        assert_eq!(imports("src/prom/mod.rs", text), expected);
    }

    #[test]
    fn relative_paths_start_at_the_module_where_they_stand() {
        let text = "use super::b::C;\nmod inner { use super::super::d; }\nuse super::super::e;";
        let expected = [
            (1, "x::y::b::C".to_owned()),
            (2, "x::y::d".to_owned()),
            (3, "x::e".to_owned()),
        ];
        assert_eq!(imports("src/x/y/z.rs", text), expected);
    }

    #[test]
    fn items_of_tests_are_no_imports_of_the_file() {
        let text = "#[cfg(test)]\nuse crate::a::{b};\n#[cfg(test)]\nfn f(_: [u8; 2]) { crate::c::d() }\n\
                    #[cfg(test)]\nmod tests { use crate::e; }\n#[cfg(test)]\npub(crate) mod testing;\nuse crate::f;";
        assert_eq!(imports("src/x/mod.rs", text), [(9, "f".to_owned())]);
        let source = SourceFile::new("src/x/mod.rs", text);
        assert_eq!(source.test_modules, [["x", "testing"]]);
    }

    #[test]
    fn types_are_noted_without_associated_types_and_those_of_tests() {
        let text = "pub struct A<T>(T);\nenum B {}\nmod inner { pub(crate) type C = u8; }\ntrait D { type E; }\n\
                    impl D for B { type E = u8; }\nunion F { a: u8 }\nfn union(a: G) { struct H; type I = u8; }\n\
                    #[cfg(test)]\nmod tests { struct J; }\ntype K = u8;";
        let types = SourceFile::new("src/x.rs", text).types;
        assert_eq!(types, ["A", "B", "C", "D", "F", "H", "K"]);
    }

    #[test]
    fn a_file_is_a_module_by_its_path() {
        assert_eq!(module("src/lib.rs"), Vec::<String>::new());
        assert_eq!(module("src/net/mod.rs"), ["net"]);
        assert_eq!(module("src/net/tls.rs"), ["net", "tls"]);
    }
}
