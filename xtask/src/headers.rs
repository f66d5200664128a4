// SPDX-License-Identifier: Apache-2.0

//! Compares the declarations of two versions of a C header, by their text.
//!
//! It reads the declarations that our headers have: macros, enums with numbers, structs, functions. It does not know
//! strings: a comment sign in one begins a comment.

/// Members that tell the size of a struct to the other side. Such a struct may get members at its end.
const SIZES: [&str; 2] = ["size_t size", "size_t struct_size"];

/// A declaration or a macro: its words and signs, with one space between.
#[derive(Debug)]
struct Declaration {
    /// All but the members.
    head: String,
    /// Those of an enum or a struct.
    members: Vec<String>,
}

/// The declarations of the older header that the newer one lacks or changes. A higher ABI number permits all.
pub(crate) fn breaks(older: &str, newer: &str) -> Vec<String> {
    let (then, now) = (declarations(older), declarations(newer));
    if abi(&now) > abi(&then) {
        return Vec::new();
    }
    let holds = |declaration: &Declaration| now.iter().any(|newer| declaration.holds_in(newer));
    let broken = then.iter().filter(|declaration| !holds(declaration));
    broken.map(Declaration::text).collect()
}

impl Declaration {
    fn of(tokens: &[&str]) -> Self {
        let start = tokens.iter().position(|token| *token == "{");
        let end = tokens.iter().rposition(|token| *token == "}");
        let (Some(start), Some(end)) = (start, end) else {
            return Self {
                head: tokens.join(" "),
                members: Vec::new(),
            };
        };
        let head = [&tokens[..start], &tokens[end + 1..]].concat();
        let separator = if head.contains(&"enum") { "," } else { ";" };
        // Programs compile the body of an inline function: it may change.
        let has_members = !head.contains(&"inline");
        let body = tokens.get(start + 1..end).unwrap_or_default();
        let members = body.split(|token| *token == separator);
        let members = members.filter(|member| has_members && !member.is_empty());
        Self {
            head: head.join(" "),
            members: members.map(|member| member.join(" ")).collect(),
        }
    }

    fn holds_in(&self, newer: &Self) -> bool {
        let is_enum = self.head.split(' ').any(|word| word == "enum");
        let can_grow = SIZES
            .iter()
            .any(|size| self.members.iter().any(|member| member == size));
        let members = if is_enum {
            self.members.iter().all(|member| newer.members.contains(member))
        } else if can_grow {
            newer.members.starts_with(&self.members)
        } else {
            self.members == newer.members
        };
        self.head == newer.head && members
    }

    fn text(&self) -> String {
        if self.members.is_empty() {
            self.head.clone()
        } else {
            format!("{} {{ {} }}", self.head, self.members.join("; "))
        }
    }
}

fn declarations(header: &str) -> Vec<Declaration> {
    let text = without_comments(&header.replace("\\\n", " "));
    let (directives, code): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.trim_start().starts_with('#'));
    let macros = directives.iter().map(|line| spelled(line));
    let macros = macros.filter(|line| line.starts_with("# define "));
    let mut all: Vec<_> = macros
        .map(|head| Declaration {
            head,
            members: Vec::new(),
        })
        .collect();
    let code = spelled(&code.join("\n")).replace("extern \" C \" {", "");
    let tokens: Vec<&str> = code.split_whitespace().collect();
    let (mut start, mut depth) = (0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1), // `extern "C"` has one more
            _ => {}
        }
        let is_function = *token == "}" && tokens[start..at].contains(&"inline");
        if depth == 0 && (*token == ";" || is_function) {
            let end = at + usize::from(is_function);
            all.push(Declaration::of(&tokens[start..end]));
            start = at + 1;
        }
    }
    all
}

fn without_comments(text: &str) -> String {
    let (mut kept, mut left) = (String::new(), text);
    while let Some(at) = left.find("/*").into_iter().chain(left.find("//")).min() {
        let (before, comment) = left.split_at(at);
        kept.push_str(before);
        kept.push(' ');
        let end = if comment.starts_with("/*") {
            comment.find("*/").map(|end| end + 2)
        } else {
            comment.find('\n')
        };
        left = &comment[end.unwrap_or(comment.len())..];
    }
    kept + left
}

/// Words and signs, with one space between: the layout of a declaration is not part of it.
fn spelled(text: &str) -> String {
    let mut spaced = String::new();
    for sign in text.chars() {
        if sign.is_alphanumeric() || sign == '_' {
            spaced.push(sign);
        } else {
            spaced.extend([' ', sign, ' ']);
        }
    }
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number that a header raises when programs must be compiled again.
fn abi(declarations: &[Declaration]) -> Option<u32> {
    declarations.iter().find_map(|declaration| {
        let (_, number) = declaration.head.split_once("ABI_VERSION ")?;
        number.trim_end_matches('u').parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::workspace;

    const HEADER: &str = "
/* A comment; it has
   // signs { of others. */
#define X_ABI_VERSION 1u
#define X_BOTH(a) \\
  (a), 2
extern \"C\" {
typedef enum x_kind { X_ONE = 1, X_TWO = 2, } x_kind; // One more?
typedef struct x_pair { int a; double b; } x_pair;
typedef struct x_options { size_t size; int a; } x_options;
enum x_kind x_ask(const x_pair *pair, int (*answer)(int));
static inline int x_inline(int a) { if (a) { return 1; } return 2; }
void x_last(void);
}
";

    fn changed(from: &str, to: &str) -> Vec<String> {
        assert!(HEADER.contains(from));
        breaks(HEADER, &HEADER.replace(from, to))
    }

    #[test]
    fn a_declaration_that_is_gone_or_changed_is_a_break() {
        let function = "enum x_kind x_ask ( const x_pair * pair , int ( * answer ) ( int ) )";
        assert_eq!(changed("x_ask", "x_ask2"), [function]);
        assert_eq!(changed("(const x_pair", "(x_pair"), [function]);
        assert_eq!(changed("void x_last(void);", ""), ["void x_last ( void )"]);
        assert_eq!(changed("(a), 2", "(a), 3"), ["# define X_BOTH ( a ) ( a ) , 2"]);
        assert_eq!(changed("X_TWO = 2", "X_TWO = 3").len(), 1);
        assert_eq!(changed("int a; double b;", "double b; int a;").len(), 1);
        assert_eq!(changed("double b;", "double b; int c;").len(), 1);
        assert_eq!(changed("size_t size; int a;", "size_t size;").len(), 1);
        assert_eq!(
            changed("x_inline", "x_inlined"),
            ["static inline int x_inline ( int a )"]
        );
    }

    #[test]
    fn an_addition_is_not_a_break() {
        for (from, to) in [
            ("void x_last(void);", "void x_last(void); void x_new(void);"),
            ("X_TWO = 2,", "X_TWO = 2, X_THREE = 3"),
            ("size_t size; int a;", "size_t size; int a; int b;"),
            ("return 2;", "return 3;"),
            ("const x_pair *pair,", "const x_pair*\n    pair, // that one\n"),
        ] {
            assert_eq!(changed(from, to), [""; 0], "{to}");
        }
    }

    #[test]
    fn a_higher_abi_number_permits_breaks() {
        let newer = HEADER.replace("x_last", "x_end");
        assert_eq!(breaks(HEADER, &newer).len(), 1);
        assert_eq!(breaks(HEADER, &newer.replace(" 1u", " 2u")), [""; 0]);
        assert_eq!(breaks(HEADER, &HEADER.replace(" 1u", " 0u")).len(), 1);
    }

    #[test]
    fn every_declaration_of_our_headers_is_found() {
        for (path, last) in [
            ("tidegate-capi/include/tidegate.h", "tg_ring_release"),
            ("tidegate-plugin/include/tidegate_plugin.h", "tidegate_say"),
        ] {
            let header = std::fs::read_to_string(workspace().join("crates").join(path)).expect(path);
            assert_eq!(breaks(&header, &header), [""; 0]);
            assert_eq!(breaks(&header, &header.replace(last, "other")).len(), 1, "{path}");
            assert!(abi(&declarations(&header)).is_some(), "{path}");
        }
    }
}
