"""The teachers of DataLens, one file each; this union is their registry."""

from datalens_service.methods.voting.teachers.base import Setting, TeacherParameters
from datalens_service.methods.voting.teachers.kernel import KernelTeacher
from datalens_service.methods.voting.teachers.networks import ConvTeacher, DenseTeacher

AnyTeacher = DenseTeacher | ConvTeacher | KernelTeacher
"""Kinds of teachers, each with its parameters; `name` tells them apart."""

__all__ = ["AnyTeacher", "ConvTeacher", "DenseTeacher", "KernelTeacher", "Setting", "TeacherParameters"]
