"""What is captured of which tensor at which step.

That is the plan, its budgets, and copies of tensors in host memory.
"""
