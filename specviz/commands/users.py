"""``specviz users``: the file of names and password hashes that ``specviz app --auth-file`` takes."""

from __future__ import annotations

import argparse
import getpass
import sys

from . import options

DESCRIPTION = (
    "Make and change a users file. Passwords are asked for and kept as scrypt hashes only; a running server sees a "
    "change at once."
)


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    for name, text in (("add", "add a user, or give one another password"), ("remove", "take a user out")):
        action_parser = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        options.file(action_parser, "file", "the users file; made where there is none", "FILE")
        action_parser.add_argument("name", metavar="NAME", help="letters, digits, dots, dashes and underscores")
    action_parser = actions.add_parser("list", help="who is in the file", description="Who is in the file.")
    options.file(action_parser, "file", "the users file", "FILE")


def run(args: argparse.Namespace) -> int:
    from specviz.server.users import checked_name, checked_password, hash_password, read_users, write_users

    users = read_users(args.file) if args.file.exists() or args.action != "add" else {}
    if args.action == "list":
        print("\n".join(users) if users else "nobody")
        return 0
    name = checked_name(args.name)
    if args.action == "remove":
        if name not in users:
            raise ValueError(f"there is no user {name} in {args.file}: there is {', '.join(users) or 'nobody'}")
        del users[name]
        write_users(args.file, users)
        print(f"{name} is taken out of {args.file}")
        return 0
    sentence = "has another password now" if name in users else f"may sign in: specviz app --auth-file {args.file}"
    users[name] = hash_password(checked_password(_typed_password(name)))
    write_users(args.file, users)
    print(name, sentence)
    return 0


def _typed_password(name: str) -> str:
    """The password, typed twice; one line of the input where that is no terminal."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass(f"Password for {name}: ")
    if password != getpass.getpass("The same again: "):
        raise ValueError("the two passwords differ: try again")
    return password
