//! No test asserts a duration: this test reads all assertions' conditions. A busy machine
//! stretches every duration, so asserting one fails although nothing is wrong.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Macro, Pat, Stmt, Token};

use crate::harness::list_files;

/// Methods that measure a duration.
const MEASUREMENTS: [&str; 4] = [
    "elapsed",
    "duration_since",
    "saturating_duration_since",
    "checked_duration_since",
];

/// Timestamp starts: a duration since it is not measured.
const EPOCH: &str = "UNIX_EPOCH";

/// Methods that store their arguments in a collection.
const INSERTIONS: [&str; 4] = ["push", "extend", "insert", "push_back"];

/// Macros without a value, whose arguments are a message.
const MESSAGES: [&str; 6] = [
    "panic",
    "println",
    "eprintln",
    "unreachable",
    "print",
    "eprint",
];

/// Returns a path's last segment.
fn name_of(path: &syn::Path) -> String {
    let last = path.segments.last();
    last.map(|last| last.ident.to_string()).unwrap_or_default()
}

/// Returns `true` if a type mentions another type by this name.
fn mentions(r#type: &syn::Type, name: &str) -> bool {
    struct Search<'a>(&'a str, bool);
    impl<'ast> Visit<'ast> for Search<'_> {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            self.1 |= name_of(path) == self.0;
            visit::visit_path(self, path);
        }
    }
    let mut search = Search(name, false);
    search.visit_type(r#type);
    search.1
}

/// Returns `true` if a function is a test with paused time, which it may assert.
fn has_paused_time(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        list.is_ok_and(|list| list.tokens.to_string().contains("start_paused"))
    })
}

/// The expressions in a macro's body: all, or the first one if a pattern follows, as in `matches!`.
/// Other bodies, as in `tokio::select!`, have the expressions from [`expressions_within`].
fn expressions(body: &Macro) -> Vec<Expr> {
    let list = Punctuated::<Expr, Token![,]>::parse_terminated;
    if let Ok(all) = body.parse_body_with(list) {
        return all.into_iter().collect();
    }
    let first = |input: ParseStream<'_>| {
        let first = input.parse::<Expr>()?;
        input.parse::<Token![,]>()?;
        input.parse::<TokenStream>()?;
        Ok(first)
    };
    match body.parse_body_with(first) {
        Ok(first) => vec![first],
        Err(_) => expressions_within(body.tokens.clone()),
    }
}

/// Returns the blocks and the macro calls in tokens that are no expression.
fn expressions_within(tokens: TokenStream) -> Vec<Expr> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            continue;
        };
        let is_macro = matches!(
            tokens[..at],
            [.., TokenTree::Ident(_), TokenTree::Punct(ref mark)] if mark.as_char() == '!'
        );
        let called = tokens[at.saturating_sub(2)..=at].iter().cloned();
        if is_macro && let Ok(call) = syn::parse2::<Expr>(called.collect()) {
            found.push(call);
        } else if group.delimiter() == Delimiter::Brace
            && let Ok(statements) = Block::parse_within.parse2(group.stream())
        {
            let block = syn::ExprBlock {
                attrs: Vec::new(),
                label: None,
                block: Block {
                    brace_token: syn::token::Brace::default(),
                    stmts: statements,
                },
            };
            found.push(Expr::Block(block));
        } else {
            found.extend(expressions_within(group.stream()));
        }
    }
    found
}

fn is_epoch(expr: &Expr) -> bool {
    matches!(expr, Expr::Path(path) if name_of(&path.path) == EPOCH)
}

/// Returns a variable, or its field, such as `times.reads`.
fn place_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Field(field) => {
            let member = match &field.member {
                syn::Member::Named(name) => name.to_string(),
                syn::Member::Unnamed(index) => index.index.to_string(),
            };
            Some(format!("{}.{member}", place_of(&field.base)?))
        }
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}

/// Names that a file defines.
#[derive(Default)]
struct Definitions {
    /// Fields that are instants.
    instant_fields: BTreeSet<String>,
    /// Functions that return a measured duration.
    measuring: BTreeSet<String>,
}

/// A function's local variables.
#[derive(Default, Clone, PartialEq)]
struct Locals {
    instants: BTreeSet<String>,
    durations: BTreeSet<String>,
}

/// Reads a function.
struct Function<'a> {
    definitions: &'a Definitions,
    locals: Locals,
    /// The lines with assertions on durations, and the total assertion count.
    found: BTreeSet<usize>,
    assertions: usize,
    /// `true` once the local variables are known, so that assertions can be read.
    is_bound: bool,
}

impl<'a> Function<'a> {
    fn read(
        definitions: &'a Definitions,
        signature: &syn::Signature,
        body: &Block,
    ) -> Function<'a> {
        let mut function = Function {
            definitions,
            locals: Locals::default(),
            found: BTreeSet::new(),
            assertions: 0,
            is_bound: false,
        };
        for input in &signature.inputs {
            function.visit_fn_arg(input);
        }
        // A variable can be bound through others that are bound later, as in a loop.
        loop {
            let before = function.locals.clone();
            function.visit_block(body);
            if function.locals == before {
                break;
            }
        }
        function.is_bound = true;
        function.visit_block(body);
        function
    }

    fn is_instant(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => {
                    let segments: Vec<_> = path.path.segments.iter().collect();
                    matches!(&segments[..], [.., clock, now] if now.ident == "now"
                        && (clock.ident == "Instant" || clock.ident == "SystemTime"))
                }
                _ => false,
            },
            Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => {
                    let fields = &self.definitions.instant_fields;
                    fields.contains(&name.to_string())
                }
                syn::Member::Unnamed(_) => self.is_instant(&field.base),
            },
            Expr::MethodCall(call) => call.method == "clone" && self.is_instant(&call.receiver),
            Expr::Paren(inner) => self.is_instant(&inner.expr),
            Expr::Path(path) => path
                .path
                .get_ident()
                .is_some_and(|name| self.locals.instants.contains(&name.to_string())),
            Expr::Reference(inner) => self.is_instant(&inner.expr),
            Expr::Unary(inner) => self.is_instant(&inner.expr),
            _ => false,
        }
    }

    /// Returns `true` if a block's value is its last expression and contains a measured
    /// duration.
    fn is_measured_block(&self, block: &Block) -> bool {
        match block.stmts.last() {
            Some(Stmt::Expr(last, None)) => self.is_measured(last),
            Some(Stmt::Macro(last)) if last.semi_token.is_none() => {
                self.is_measured_macro(&last.mac)
            }
            _ => false,
        }
    }

    fn is_measured_macro(&self, body: &Macro) -> bool {
        !MESSAGES.contains(&&*name_of(&body.path))
            && expressions(body).iter().any(|expr| self.is_measured(expr))
    }

    /// Returns `true` if an expression's value depends on a measured duration.
    fn is_measured(&self, expr: &Expr) -> bool {
        let any = |exprs: &Punctuated<Expr, Token![,]>| exprs.iter().any(|e| self.is_measured(e));
        match expr {
            Expr::Array(array) => any(&array.elems),
            Expr::Async(block) => self.is_measured_block(&block.block),
            Expr::Await(inner) => self.is_measured(&inner.base),
            Expr::Binary(binary) => {
                let is_difference = matches!(binary.op, BinOp::Sub(_))
                    && self.is_instant(&binary.left)
                    && self.is_instant(&binary.right);
                is_difference || self.is_measured(&binary.left) || self.is_measured(&binary.right)
            }
            Expr::Block(block) => self.is_measured_block(&block.block),
            Expr::Call(call) => {
                let is_measuring = match &*call.func {
                    Expr::Path(path) => {
                        let name = name_of(&path.path);
                        MEASUREMENTS.contains(&&*name) || self.definitions.measuring.contains(&name)
                    }
                    _ => false,
                };
                is_measuring || self.is_measured(&call.func) || any(&call.args)
            }
            Expr::Cast(cast) => self.is_measured(&cast.expr),
            Expr::Closure(closure) => self.is_measured(&closure.body),
            Expr::Field(field) => {
                let place = place_of(expr);
                place.is_some_and(|place| self.locals.durations.contains(&place))
                    || self.is_measured(&field.base)
            }
            Expr::Group(inner) => self.is_measured(&inner.expr),
            Expr::If(branches) => {
                self.is_measured_block(&branches.then_branch)
                    || branches
                        .else_branch
                        .as_ref()
                        .is_some_and(|(_, other)| self.is_measured(other))
            }
            Expr::Index(index) => self.is_measured(&index.expr) || self.is_measured(&index.index),
            Expr::Let(binding) => self.is_measured(&binding.expr),
            Expr::Loop(repeated) => self.breaks_with_duration(&repeated.body),
            Expr::Macro(body) => self.is_measured_macro(&body.mac),
            Expr::Match(branches) => {
                let mut arms = branches.arms.iter();
                arms.any(|arm| self.is_measured(&arm.body))
            }
            Expr::MethodCall(call) if call.args.iter().any(is_epoch) => false,
            Expr::MethodCall(call) => {
                let method = call.method.to_string();
                MEASUREMENTS.contains(&&*method)
                    || self.definitions.measuring.contains(&method)
                    || self.is_measured(&call.receiver)
                    || any(&call.args)
            }
            Expr::Paren(inner) => self.is_measured(&inner.expr),
            Expr::Path(path) => path
                .path
                .get_ident()
                .is_some_and(|name| self.locals.durations.contains(&name.to_string())),
            Expr::Range(range) => [&range.start, &range.end]
                .into_iter()
                .flatten()
                .any(|end| self.is_measured(end)),
            Expr::Reference(inner) => self.is_measured(&inner.expr),
            Expr::Struct(value) => {
                let mut fields = value.fields.iter();
                fields.any(|field| self.is_measured(&field.expr))
            }
            Expr::Try(inner) => self.is_measured(&inner.expr),
            Expr::Tuple(tuple) => any(&tuple.elems),
            Expr::Unary(inner) => self.is_measured(&inner.expr),
            _ => false,
        }
    }

    fn breaks_with_duration(&self, body: &Block) -> bool {
        struct Breaks<'f, 'a>(&'f Function<'a>, bool);
        impl<'ast> Visit<'ast> for Breaks<'_, '_> {
            fn visit_expr_break(&mut self, ended: &'ast syn::ExprBreak) {
                let value = ended.expr.as_ref();
                self.1 |= value.is_some_and(|value| self.0.is_measured(value));
            }
        }
        let mut breaks = Breaks(self, false);
        breaks.visit_block(body);
        breaks.1
    }

    /// Adds a pattern's variables to the durations or to the instants.
    fn add(&mut self, pat: &Pat, is_duration: bool) {
        struct Variables(Vec<String>);
        impl<'ast> Visit<'ast> for Variables {
            fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
                self.0.push(pat.ident.to_string());
                visit::visit_pat_ident(self, pat);
            }
        }
        let mut variables = Variables(Vec::new());
        variables.visit_pat(pat);
        if is_duration {
            self.locals.durations.extend(variables.0);
        } else {
            self.locals.instants.extend(variables.0);
        }
    }

    /// Binds a pattern's variables to a value, each tuple element by itself.
    fn bind(&mut self, pat: &Pat, value: &Expr) {
        let joined = match value {
            Expr::Macro(body) if name_of(&body.mac.path) == "join" => expressions(&body.mac),
            _ => Vec::new(),
        };
        let elements: Vec<&Expr> = match value {
            Expr::Tuple(tuple) => tuple.elems.iter().collect(),
            _ => joined.iter().collect(),
        };
        match pat {
            Pat::Paren(inner) => self.bind(&inner.pat, value),
            Pat::Type(typed) => self.bind(&typed.pat, value),
            Pat::Tuple(tuple) if tuple.elems.len() == elements.len() => {
                for (pat, value) in tuple.elems.iter().zip(elements) {
                    self.bind(pat, value);
                }
            }
            _ if self.is_measured(value) => self.add(pat, true),
            _ if self.is_instant(value) => self.add(pat, false),
            _ => {}
        }
    }

    /// Adds the variable, or a variable's field, that an expression changes.
    fn change(&mut self, place: &Expr) {
        match place {
            Expr::Index(index) => self.change(&index.expr),
            Expr::Unary(inner) => self.change(&inner.expr),
            _ => self.locals.durations.extend(place_of(place)),
        }
    }

    fn read_assertion<'e>(
        &mut self,
        ident: &syn::Ident,
        mut conditions: impl Iterator<Item = &'e Expr>,
    ) {
        if self.is_bound {
            self.assertions += 1;
            if conditions.any(|expr| self.is_measured(expr)) {
                self.found.insert(ident.span().start().line);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Function<'_> {
    // A function within a function is read by itself.
    fn visit_item(&mut self, _: &'ast syn::Item) {}

    fn visit_pat_type(&mut self, pat: &'ast syn::PatType) {
        if mentions(&pat.ty, "Instant") {
            self.add(&pat.pat, false);
        }
        visit::visit_pat_type(self, pat);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let Some(init) = &local.init {
            self.bind(&local.pat, &init.expr);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_let(&mut self, binding: &'ast syn::ExprLet) {
        self.bind(&binding.pat, &binding.expr);
        visit::visit_expr_let(self, binding);
    }

    fn visit_expr_for_loop(&mut self, repeated: &'ast syn::ExprForLoop) {
        self.bind(&repeated.pat, &repeated.expr);
        visit::visit_expr_for_loop(self, repeated);
    }

    fn visit_expr_match(&mut self, branches: &'ast syn::ExprMatch) {
        for arm in &branches.arms {
            self.bind(&arm.pat, &branches.expr);
        }
        visit::visit_expr_match(self, branches);
    }

    fn visit_expr_assign(&mut self, assignment: &'ast syn::ExprAssign) {
        if self.is_measured(&assignment.right) {
            self.change(&assignment.left);
        }
        visit::visit_expr_assign(self, assignment);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if matches!(binary.op, BinOp::AddAssign(_)) && self.is_measured(&binary.right) {
            self.change(&binary.left);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        let is_insertion = INSERTIONS.contains(&&*method);
        if is_insertion && call.args.iter().any(|expr| self.is_measured(expr)) {
            self.change(&call.receiver);
        }
        if self.is_measured(&call.receiver) {
            for argument in &call.args {
                if let Expr::Closure(closure) = argument {
                    closure.inputs.iter().for_each(|pat| self.add(pat, true));
                }
            }
        }
        if method.contains("assert") {
            self.read_assertion(&call.method, call.args.iter());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*call.func
            && let Some(name) = path.path.segments.last()
            && name.ident.to_string().starts_with("assert")
        {
            self.read_assertion(&name.ident, call.args.iter());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, body: &'ast Macro) {
        let exprs = expressions(body);
        if let Some(name) = body.path.segments.last() {
            let text = name.ident.to_string();
            if text.contains("assert") {
                let conditions = if text.ends_with("_eq") || text.ends_with("_ne") {
                    2
                } else {
                    1
                };
                self.read_assertion(&name.ident, exprs.iter().take(conditions));
            }
        }
        for expr in &exprs {
            self.visit_expr(expr);
        }
    }
}

/// Reads a file's functions.
#[derive(Default)]
struct File {
    definitions: Definitions,
    found: BTreeSet<usize>,
    assertions: usize,
    /// `true` once the definitions are known, so that assertions can be read.
    is_defined: bool,
}

impl File {
    fn read(source: &str) -> Self {
        let parsed = syn::parse_file(source).unwrap();
        let mut file = Self::default();
        loop {
            let before = file.definitions.measuring.len();
            file.visit_file(&parsed);
            if file.definitions.measuring.len() == before {
                break;
            }
        }
        file.is_defined = true;
        file.visit_file(&parsed);
        file
    }

    fn read_function(&mut self, signature: &syn::Signature, body: &Block) {
        let function = Function::read(&self.definitions, signature, body);
        if self.is_defined {
            self.assertions += function.assertions;
            self.found.extend(function.found);
        } else if let syn::ReturnType::Type(_, returned) = &signature.output
            && mentions(returned, "Duration")
            && function.is_measured_block(body)
        {
            let name = signature.ident.to_string();
            self.definitions.measuring.insert(name);
        }
    }
}

impl<'ast> Visit<'ast> for File {
    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident
            && mentions(&field.ty, "Instant")
        {
            self.definitions.instant_fields.insert(name.to_string());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !has_paused_time(&item.attrs) {
            self.read_function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.read_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

/// Returns a script's lines in Python or JavaScript that assert a duration: with a clock in the
/// condition, or with a variable that was assigned a time difference.
fn read_script(source: &str) -> Vec<usize> {
    const CLOCKS: [&str; 5] = [
        "time.time()",
        "monotonic()",
        "perf_counter()",
        "Date.now()",
        "performance.now()",
    ];
    let has_clock = |text: &str| CLOCKS.iter().any(|clock| text.contains(clock));
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .map(str::to_owned)
            .collect()
    };
    let differences = source.lines().filter_map(|line| {
        let (name, value) = line.split_once(" = ")?;
        let name = name.split_whitespace().last()?;
        (has_clock(value) && value.contains(" - ")).then(|| name.to_owned())
    });
    let differences: BTreeSet<String> = differences.collect();
    let asserts_duration = |line: &&str| {
        let line = line.trim_start();
        let is_assertion = line.starts_with("assert");
        // A message follows the condition.
        let condition = line.split(", ").next().unwrap_or_default();
        let condition = if line.starts_with("assert ") {
            condition
        } else {
            line
        };
        is_assertion && (has_clock(condition) || !words(condition).is_disjoint(&differences))
    };
    let lines = source.lines().enumerate();
    lines
        .filter(|(_, line)| asserts_duration(line))
        .map(|(number, _)| number + 1)
        .collect()
}

#[test]
fn tests_assert_no_duration() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    let (mut assertions, mut scripts) = (0, 0);
    for folder in ["api", "clients", "core", "proto", "tests", "worker"] {
        for path in list_files(&root.join(folder)) {
            let path = path.strip_prefix(root).unwrap();
            // Benchmarks measure durations.
            let skipped = ["benches", "node_modules", "target", ".venv"];
            if path
                .iter()
                .any(|part| skipped.iter().any(|name| part == *name))
            {
                continue;
            }
            let read = || std::fs::read_to_string(root.join(path)).unwrap();
            let lines: Vec<usize> = match path.extension().and_then(|name| name.to_str()) {
                Some("rs") => {
                    let file = File::read(&read());
                    assertions += file.assertions;
                    file.found.into_iter().collect()
                }
                Some("py" | "mjs" | "js") => {
                    scripts += 1;
                    read_script(&read())
                }
                _ => continue,
            };
            found.extend(
                lines
                    .iter()
                    .map(|line| format!("{}:{line}", path.display())),
            );
        }
    }
    assert!(
        assertions > 4_000 && scripts > 50,
        "{assertions} assertions in Rust, {scripts} scripts"
    );
    assert!(
        found.is_empty(),
        "these assertions depend on the speed of the machine; assert an order or a count, or wait \
         with `in_time` or `wait_until`:\n{}",
        found.join("\n")
    );
}

#[test]
fn asserted_durations_are_found() {
    let lines = |body: &str| File::read(&format!("fn test() {{\n{body}\n}}")).found;
    for planted in [
        "assert!(began.elapsed() < LIMIT);",
        "assert_eq!(first, began.elapsed().as_secs());",
        "assert_ne!(now.duration_since(began), LIMIT, \"message\");",
        "debug_assert!((9..15).contains(&began.elapsed().as_secs()));",
        "assert!(matches!(began.elapsed().as_secs(), 1..3));",
        "assert!(Instant::now() - began < LIMIT && began.is_old()); let began = Instant::now();",
        "let began = Instant::now(); let ended = Instant::now(); assert!(ended - began < LIMIT);",
        "let took = began.elapsed(); let seconds = took.as_secs(); assert!(seconds < 5);",
        "let (count, took) = (1, began.elapsed()); assert!(took < LIMIT);",
        "let (_, took) = tokio::join!(calls, async { began.elapsed() }); assert!(took < LIMIT);",
        "let is_fast = began.elapsed() < LIMIT; assert!(is_fast);",
        "let mut slowest = ZERO; slowest = slowest.max(began.elapsed()); assert!(slowest < LIMIT);",
        "let mut all = Vec::new(); all.push(began.elapsed()); assert!(all[0] < LIMIT);",
        "times.reads.push(began.elapsed()); assert!(times.reads[0] < LIMIT);",
        "let mut sum = ZERO; sum += began.elapsed(); assert!(sum < LIMIT);",
        "let took = loop { break began.elapsed(); }; assert!(took < LIMIT);",
        "for took in [began.elapsed()] { assert!(took < LIMIT); }",
        "let took = || began.elapsed(); assert!(took() < LIMIT);",
        "assert_about(\"the request\", began.elapsed(), 75);",
        "tokio::select! { _ = a => assert!(began.elapsed() < LIMIT), _ = b => {} }",
        "tokio::select! { _ = a => { let t = began.elapsed(); assert!(t < LIMIT); } _ = b => {} }",
        "let call = async { assert!(began.elapsed() < LIMIT); };",
        "fn took() -> Duration { Instant::now().elapsed() } assert!(took() < LIMIT);",
        "struct Seen { at: Instant } assert!(all[1].at - all[0].at > LIMIT);",
    ] {
        assert_eq!(lines(planted), BTreeSet::from([2]), "{planted}");
    }
    for harmless in [
        "assert!(response.is_ok(), \"{:?}\", began.elapsed());",
        "println!(\"{:?}\", began.elapsed()); assert!(count > 0);",
        "let (count, took) = (1, began.elapsed()); assert!(count > 0, \"{took:?}\");",
        "let job = loop { if began.elapsed() > LIMIT { panic!() } break job; }; assert!(job);",
        "let deadline = Instant::now() + LIMIT; assert!(deadline > before);",
        "assert!(finished_at - started_at >= 0);",
        "assert_eq!(settings.deadline, Duration::from_secs(5));",
        "times.reads.push(began.elapsed()); assert_eq!(times.refused, 0);",
        "let seconds = at.duration_since(UNIX_EPOCH).as_secs(); assert_eq!(seconds, 5);",
    ] {
        assert_eq!(lines(harmless), BTreeSet::new(), "{harmless}");
    }
    let paused = "#[tokio::test(start_paused = true)]\nasync fn test() {\nassert!(began.elapsed() < LIMIT);\n}";
    assert_eq!(File::read(paused).found, BTreeSet::new());
    let method = "impl Test {\nfn check(&self) {\nassert!(\nself.began.elapsed() < LIMIT\n);\n}\n}";
    assert_eq!(File::read(method).found, BTreeSet::from([3]));

    let script = "took = time.monotonic() - began\nassert took < 5, took\nassert time.time() < end\nassert count, took\n  assert.ok(Date.now() < end);\nend = time.monotonic() + 5\nassert end\n";
    assert_eq!(read_script(script), [2, 3, 5]);
}
