from tests.he.program.test_interpreter import residual_program


def test_program_properties() -> None:
    made = residual_program()
    assert made.output.name == "flat"
    assert made.column_steps == made.linear_nodes[0][1].column_steps
