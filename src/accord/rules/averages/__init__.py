"""How clients' updates become one."""
