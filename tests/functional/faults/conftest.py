"""Says how many scenarios of the matrix ran, and how many of each kind."""


def pytest_terminal_summary(terminalreporter):
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if kinds := dict(report.user_properties).get("faults"):
                each = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
                terminalreporter.write_line(f"fault matrix: {sum(kinds.values())} scenarios ({each})")
